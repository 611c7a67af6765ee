"""The rule for windows over each channel by itself: depthwise convolutions and their gradients.

A channel has few products for each element that is read, so reading must be cheap. A band of rows is copied once, which
resolves padding and strides (`planes`); then the window slides over the copy in tiles with all taps unrolled. A row of
the copy that several rows of the tile need is loaded once.

As in `packed_product`, the loops are written as statements: where a size is not a multiple of the tile, the last tile
reaches into zeros, and its sums there are not stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import Contraction
from edgetrain_tuner.rules.product.tiles import even_bands
from edgetrain_tuner.rules.rule import Kernel, on_log_grid
from edgetrain_tuner.rules.window.form import ChannelWindow, find_window
from edgetrain_tuner.rules.window.over_result import Limits, SlideOverResult
from edgetrain_tuner.rules.window.over_sums import SlideOverSums
from edgetrain_tuner.rules.window.sliding import Sliding
from edgetrain_tuner.rules.window.tiling import (
    PARAMETERS,
    choose_tiling,
    most_band_tiles,
    tiles,
    tiling_of,
)
from edgetrain_tuner.schedule import Parameters, ScheduleRefusedError, Values


class Channelwise:
    """The rule. It declines where no window slides over channels, or over too little of them."""

    name = "channelwise"

    def names(self, _kernel: Kernel) -> Sequence[str]:
        return PARAMETERS

    def propose(self, kernel: Kernel, machine: Machine) -> Parameters | None:
        contraction = kernel.contraction
        if contraction is None or contraction.multiply_adds < machine.thresholds.window_multiply_adds:
            return None
        window = _window(contraction)
        tiling = choose_tiling(window, machine) if window is not None else None
        return None if tiling is None else tiling.parameters

    def choices(self, kernel: Kernel, machine: Machine, name: str, before: Parameters) -> Sequence[Values]:
        window = None if kernel.contraction is None else _window(kernel.contraction)
        if window is None:
            return []
        fitting = [t for t in tiles(window, machine) if all(v == (getattr(t, n),) for n, v in before.items())]
        if name != "band_tiles":
            return sorted({(getattr(tile, name),) for tile in fitting})
        row_tiles = -(-window.rows.position.extent // fitting[0].rows)
        most = most_band_tiles(window, fitting[0], machine.limits.most_plane_bytes)
        return sorted({(min(even_bands(row_tiles, count), most),) for count in on_log_grid(most)})

    def check(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> None:
        self._sliding(kernel, machine, parameters)

    def write(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> Any:
        sliding = self._sliding(kernel, machine, parameters)
        limits = Limits.of(sliding.window)
        if sliding.window.slides_over_result and limits is not None:
            return SlideOverResult(sliding, limits).function()
        return SlideOverSums(sliding).function()

    def _sliding(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> Sliding:
        window = None if kernel.contraction is None else _window(kernel.contraction)
        if window is None:
            raise ScheduleRefusedError("no window slides over the kernel's channels")
        return Sliding.over(window, tiling_of(window, machine, parameters))


def _window(contraction: Contraction) -> ChannelWindow | None:
    """The window, if one of the two ways to slide can write it."""
    window = find_window(contraction)
    if window is None:
        return None
    if window.slides_over_result:
        return None if Limits.of(window) is None else window
    has_phases = window.rows.phases * window.columns.phases > 1
    return None if has_phases or contraction.limits else window
