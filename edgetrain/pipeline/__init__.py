"""What the user asked for, done stage by stage: the only package that knows all stages, in their order.

A `Job` is the request; `fit` is the whole product on one screen. Advice where nothing fits, and choices that need a
run of their own before the first stage, are here too. Nothing here compiles, plans or trains by itself: that is each
stage's own package.
"""
