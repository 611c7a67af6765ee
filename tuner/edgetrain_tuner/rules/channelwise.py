"""A window over each channel by itself, a depthwise convolution or a gradient of one, with no search.

Each channel has few products for each element it reads, so what counts is reading it well: a band of rows is copied
once, where padding and strides are resolved (`planes`), and the window then slides over the copy in tiles whose taps
are all written out. A row of the copy that several rows of the tile need is loaded once for all of them.

As in `packed_product`, the loops are written out rather than derived: a size that divides nothing is a tile that
reaches into zeros, and whose sums there are not stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgetrain_tuner.features import Features
from edgetrain_tuner.rules.contraction import Contraction
from edgetrain_tuner.rules.rule import Kernel, on_log_grid
from edgetrain_tuner.rules.sliding import Sliding
from edgetrain_tuner.rules.tiles import even_bands
from edgetrain_tuner.rules.window_result import Limits, SlideOverResult
from edgetrain_tuner.rules.window_sums import SlideOverSums
from edgetrain_tuner.rules.window_tiles import (
    MOST_PLANE_BYTES,
    PARAMETERS,
    choose_tiling,
    most_band_tiles,
    tiles,
    tiling_of,
)
from edgetrain_tuner.rules.windows import Windowed, find_window
from edgetrain_tuner.schedule import Parameters, ScheduleRefusedError, Values

MINIMUM_MULTIPLY_ADDS = 1 << 14  # below, copying costs more than it brings


class Channelwise:
    """The rule. It declines where no window slides over channels, or over too little of them."""

    name = "channelwise"

    def names(self, _kernel: Kernel) -> Sequence[str]:
        return PARAMETERS

    def propose(self, kernel: Kernel, features: Features) -> Parameters | None:
        if kernel.contraction is None or kernel.contraction.multiply_adds < MINIMUM_MULTIPLY_ADDS:
            return None
        window = _window(kernel.contraction)
        tiling = choose_tiling(window, features) if window is not None else None
        return None if tiling is None else tiling.parameters

    def choices(self, kernel: Kernel, features: Features, name: str, before: Parameters) -> Sequence[Values]:
        window = None if kernel.contraction is None else _window(kernel.contraction)
        if window is None:
            return []
        fitting = [t for t in tiles(window, features) if all(v == (getattr(t, n),) for n, v in before.items())]
        if name != "band_tiles":
            return sorted({(getattr(tile, name),) for tile in fitting})
        row_tiles = -(-window.rows.position.extent // fitting[0].rows)
        most = most_band_tiles(window, fitting[0], MOST_PLANE_BYTES)
        return sorted({(min(even_bands(row_tiles, count), most),) for count in on_log_grid(most)})

    def check(self, kernel: Kernel, features: Features, parameters: Parameters) -> None:
        self._sliding(kernel, features, parameters)

    def write(self, kernel: Kernel, features: Features, parameters: Parameters) -> Any:
        sliding = self._sliding(kernel, features, parameters)
        limits = Limits.of(sliding.window)
        if sliding.window.slides_over_result and limits is not None:
            return SlideOverResult(sliding, limits).function()
        return SlideOverSums(sliding).function()

    def _sliding(self, kernel: Kernel, features: Features, parameters: Parameters) -> Sliding:
        window = None if kernel.contraction is None else _window(kernel.contraction)
        if window is None:
            raise ScheduleRefusedError("no window slides over the kernel's channels")
        return Sliding.over(window, tiling_of(window, features, parameters))


def _window(contraction: Contraction) -> Windowed | None:
    """The window, if it is one whose sums or whose result can be written out."""
    window = find_window(contraction)
    if window is None:
        return None
    if window.slides_over_result:
        return None if Limits.of(window) is None else window
    has_phases = window.rows.phases * window.columns.phases > 1
    return None if has_phases or contraction.limits else window
