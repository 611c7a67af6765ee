"""3 x 3 convolutions and their gradients by Winograd's algorithm, with 2.25 times fewer products.

`rule` holds both rules, `form` says which kernels they know. A convolution and a weight gradient differ in what is
tiled, so each has its own tiling and its own loops; the transforms and the sums in registers are shared. The direct
way to compute the same kernels is in `product`.
"""
