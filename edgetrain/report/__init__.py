"""Runs, plans and comparisons as web pages that need nothing else: one file each, read offline, printed, or mailed.

`html` escapes, `page` is the frame with its style and script, `charts` draw, `sections` are what a page is made of.
`live` serves the page of a run that is going on.
"""
