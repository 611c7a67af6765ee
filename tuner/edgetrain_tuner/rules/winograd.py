"""A convolution of 3 x 3 taps, or its data gradient, with 2.25 times fewer products than it has by definition.

Winograd's algorithm turns a convolution into 16 products, of a quarter as many rows each, with channels being what is
summed over: a panel of filters is transformed and kept, and blocks of the image are transformed and multiplied with it
one after the other. It needs more scratch than the direct way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgetrain_tuner.features import Features
from edgetrain_tuner.rules import blocking
from edgetrain_tuner.rules.rule import Kernel
from edgetrain_tuner.rules.sides import sides_of
from edgetrain_tuner.rules.winograd_form import Convolved, find_convolution
from edgetrain_tuner.rules.winograd_loops import WinogradLoops
from edgetrain_tuner.rules.winograd_tiling import PARAMETERS, WinogradTiling, choices, choose_tiling, cost, tiling_of
from edgetrain_tuner.schedule import Parameters, ScheduleRefusedError, Values

MINIMUM_MULTIPLY_ADDS = 1 << 22  # below, memory matters more than time
WORTH_CHANGING = 1.1  # times as fast as the direct way it must be


class Winograd:
    """The rule. It declines where the direct way is faster by the models of both, and where scratch does not fit."""

    name = "winograd"

    def names(self, _kernel: Kernel) -> Sequence[str]:
        return PARAMETERS

    def propose(self, kernel: Kernel, features: Features) -> Parameters | None:
        contraction = kernel.contraction
        if contraction is None or contraction.multiply_adds < MINIMUM_MULTIPLY_ADDS:
            return None
        form = find_convolution(contraction)
        if form is None or form.filters.extent * 2 < features.lanes:
            return None
        tiling = choose_tiling(form, features)
        return tiling.parameters if tiling is not None and is_faster(form, tiling, features) else None

    def choices(self, kernel: Kernel, features: Features, name: str, before: Parameters) -> Sequence[Values]:
        form = None if kernel.contraction is None else find_convolution(kernel.contraction)
        return [] if form is None else choices(form, features, name, before)

    def check(self, kernel: Kernel, features: Features, parameters: Parameters) -> None:
        self._way(kernel, features, parameters)

    def write(self, kernel: Kernel, features: Features, parameters: Parameters) -> Any:
        return WinogradLoops(*self._way(kernel, features, parameters)).function()

    def _way(self, kernel: Kernel, features: Features, parameters: Parameters) -> tuple[Convolved, WinogradTiling]:
        form = None if kernel.contraction is None else find_convolution(kernel.contraction)
        if form is None:
            raise ScheduleRefusedError("the kernel is no convolution of 3 x 3 taps at stride 1")
        return form, tiling_of(form, features, parameters)


def is_faster(form: Convolved, tiling: WinogradTiling, features: Features) -> bool:
    """Whether the direct way, with its smaller scratch, takes clearly longer by the models of both."""
    sides = sides_of(form.contraction.transposed()).values()
    direct = min(blocking.cost(side, blocking.choose_blocking(side, features)).total for side in sides)
    return cost(form, tiling) * WORTH_CHANGING < direct
