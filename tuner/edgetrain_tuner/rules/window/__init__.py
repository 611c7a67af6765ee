"""Windows that slide over each channel by itself: depthwise convolutions, their gradients, and pools.

Two rules: `channelwise` for windows with products, `pooling` for those without. What they share with others is
elsewhere: the form of a contraction in `rules.contraction`, that of a reduction in `rules.reduction.form`. A window
that sums over channels is a convolution, and belongs to `product` or `winograd`.
"""
