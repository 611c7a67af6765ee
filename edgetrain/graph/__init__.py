"""A `Model` becomes a `TrainGraph`: loss, backward pass and updates, as a list of kernel calls over named tensors.

Differentiation, losses, optimizers and what is trained belong here. `ir.py`, `options.py`, `persistent.py` and
`adapters.py` are plain data that every later stage reads; the rest uses TVM and runs in the compiler's process.
"""
