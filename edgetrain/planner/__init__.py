"""A training graph and a budget become a plan: what is kept, recomputed or paged, and where everything lies.

Pure: no TVM, no files, no clocks but a solver's. `make_plan.py` is the way in; `plan.py` says what a plan is, and
replays one without believing its solver.
"""
