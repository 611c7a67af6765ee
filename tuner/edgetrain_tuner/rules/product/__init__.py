"""Sums of products: matrix products, convolutions, and the gradients of both.

Two rules write them. `packed_product` copies panels and keeps a tile of sums in vector registers; `register_tile` does
without copies, for machines without vectors. Here are also the parts they are made of: tiles, blocking, panels, the
copy of an image with its padding, the transpose in registers. Other algorithms for the same sums are not here:
Winograd's is in `winograd`, windows over single channels are in `window`.
"""
