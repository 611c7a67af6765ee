"""Reductions that are neither sums of products nor windows: rows, sums over planes, gradients of lookups.

Three rules: `rows` for softmax and its like, `plane_sums` for the statistics of batch norms, `scatter` for the gradient
of an embedding. `form` reads a reduction off a kernel; rules in `window` and `product` use it as well.
"""
