"""A window over each channel by itself, a depthwise convolution or a gradient of one, with no search.

Each channel has few products for each element it reads, so what counts is reading it well: a band of rows is copied
once, where padding and strides are resolved (`planes`), and the window then slides over the copy in tiles whose taps
are all written out. A row of the copy that several rows of the tile need is loaded once for all of them.

As in `packed_product`, the loops are written out rather than derived: a size that divides nothing is a tile that
reaches into zeros, and whose sums there are not stored.
"""

from __future__ import annotations

from typing import Any

from edgetrain_tuner.features import Features
from edgetrain_tuner.rules.contraction import Contraction
from edgetrain_tuner.rules.sliding import Sliding
from edgetrain_tuner.rules.window_result import Limits, SlideOverResult
from edgetrain_tuner.rules.window_sums import SlideOverSums
from edgetrain_tuner.rules.window_tiles import choose_tiling
from edgetrain_tuner.rules.windows import find_window

MINIMUM_MULTIPLY_ADDS = 1 << 14  # below, copying costs more than it brings


def write(contraction: Contraction, features: Features) -> Any | None:
    """The kernel with its loops written out, or None if no window slides over channels, or over too little of them."""
    if contraction.multiply_adds < MINIMUM_MULTIPLY_ADDS:
        return None
    window = find_window(contraction)
    tiling = choose_tiling(window, features) if window is not None else None
    if window is None or tiling is None:
        return None
    if window.slides_over_result:
        limits = Limits.of(window)
        return None if limits is None else SlideOverResult(Sliding.over(window, tiling), limits).function()
    has_phases = window.rows.phases * window.columns.phases > 1
    return None if has_phases or contraction.limits else SlideOverSums(Sliding.over(window, tiling)).function()
