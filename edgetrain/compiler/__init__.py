"""A model and its training options become a training graph with compiled kernels. TVM runs here, in its own process.

`compile.py` is the way in, `client.py` talks to the process, `process.py` is the process. Modules that TVM never
touches say so. Memory plans and the C driver come later: `planner`, `program`.
"""
