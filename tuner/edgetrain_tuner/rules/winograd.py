"""A convolution of 3 x 3 taps, or a gradient of it, with 2.25 times fewer products than it has by definition.

Winograd's algorithm turns a convolution and its data gradient into 16 products, of a quarter as many rows each, with
channels being what is summed over: a panel of filters is transformed and kept, and blocks of the image are transformed
and multiplied with it one after the other. A weight gradient becomes 16 products of filters by channels, summed up over
the tiles of all images, and is turned into taps once, at the end. All need more scratch than the direct way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from edgetrain_tuner.features import Features
from edgetrain_tuner.rules import blocking, winograd_tiling, winograd_weights_tiling
from edgetrain_tuner.rules.contraction import Axis, Contraction
from edgetrain_tuner.rules.rule import Kernel
from edgetrain_tuner.rules.sides import sides_of
from edgetrain_tuner.rules.winograd_form import Convolved, find_convolution, find_weight_gradient
from edgetrain_tuner.rules.winograd_loops import WinogradLoops
from edgetrain_tuner.rules.winograd_weights_loops import WeightLoops
from edgetrain_tuner.schedule import Parameters, ScheduleRefusedError, Values

MINIMUM_MULTIPLY_ADDS = 1 << 22  # below, memory matters more than time
WORTH_CHANGING = 1.1  # times as fast as the direct way it must be


@dataclass(frozen=True, kw_only=True)
class _Way:
    """How kernels of a form are found, cut up and written out; `tiling` is a module that knows how to cut them."""

    computed: str
    find: Callable[[Contraction], Convolved | None]
    along: Callable[[Convolved], Axis]  # what vectors run along
    tiling: Any
    loops: Callable[[Convolved, Any], Any]


class _Rule:
    """It declines where the direct way is faster by the models of both, and where scratch does not fit."""

    def __init__(self, way: _Way) -> None:
        self._way = way

    def names(self, _kernel: Kernel) -> Sequence[str]:
        names: Sequence[str] = self._way.tiling.PARAMETERS
        return names

    def propose(self, kernel: Kernel, features: Features) -> Parameters | None:
        form = self._form(kernel)
        if form is None or form.contraction.multiply_adds < MINIMUM_MULTIPLY_ADDS:
            return None
        if self._way.along(form).extent * 2 < features.lanes:
            return None
        tiling = self._way.tiling.choose_tiling(form, features)
        if tiling is None or not is_faster(form, self._way.tiling.cost(form, tiling), features):
            return None
        parameters: Parameters = tiling.parameters
        return parameters

    def choices(self, kernel: Kernel, features: Features, name: str, before: Parameters) -> Sequence[Values]:
        form = self._form(kernel)
        found: Sequence[Values] = [] if form is None else self._way.tiling.choices(form, features, name, before)
        return found

    def check(self, kernel: Kernel, features: Features, parameters: Parameters) -> None:
        self._cut(kernel, features, parameters)

    def write(self, kernel: Kernel, features: Features, parameters: Parameters) -> Any:
        return self._way.loops(*self._cut(kernel, features, parameters)).function()

    def _cut(self, kernel: Kernel, features: Features, parameters: Parameters) -> tuple[Convolved, Any]:
        form = self._form(kernel)
        if form is None:
            raise ScheduleRefusedError(f"the kernel is no {self._way.computed} of 3 x 3 taps at stride 1")
        return form, self._way.tiling.tiling_of(form, features, parameters)

    def _form(self, kernel: Kernel) -> Convolved | None:
        return None if kernel.contraction is None else self._way.find(kernel.contraction)


class Winograd(_Rule):
    """The rule for convolutions and their data gradients."""

    name = "winograd"

    def __init__(self) -> None:
        super().__init__(
            _Way(
                computed="convolution",
                find=find_convolution,
                along=lambda form: form.filters,
                tiling=winograd_tiling,
                loops=WinogradLoops,
            )
        )


class WinogradWeights(_Rule):
    """The rule for weight gradients."""

    name = "winograd-weights"

    def __init__(self) -> None:
        super().__init__(
            _Way(
                computed="weight gradient",
                find=find_weight_gradient,
                along=lambda form: form.channels,
                tiling=winograd_weights_tiling,
                loops=WeightLoops,
            )
        )


def is_faster(form: Convolved, cost: float, features: Features) -> bool:
    """Whether the direct way, with its smaller scratch, takes clearly longer by the models of both."""
    sides = sides_of(form.contraction.transposed()).values()
    direct = min(blocking.cost(side, blocking.choose_blocking(side, features)).total for side in sides)
    return cost * WORTH_CHANGING < direct
