"""The rules for 3 x 3 convolutions and their gradients by Winograd's algorithm, with 2.25 times fewer products.

A convolution or data gradient becomes 16 matrix products, summed over channels, each with a quarter of the rows. A
panel of filters is transformed and kept; blocks of the image are transformed and multiplied with it, one after the
other. A weight gradient becomes 16 products of filters by channels, summed over the tiles of all images; at the end the
sums are transformed into taps. Both need more scratch than the direct way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import Axis, Contraction
from edgetrain_tuner.rules.product import blocking
from edgetrain_tuner.rules.product.vector_side import vector_sides
from edgetrain_tuner.rules.rule import Kernel
from edgetrain_tuner.rules.winograd import convolution_tiling, weights_tiling
from edgetrain_tuner.rules.winograd.convolution_loops import WinogradLoops
from edgetrain_tuner.rules.winograd.form import WinogradForm, find_convolution, find_weight_gradient
from edgetrain_tuner.rules.winograd.weights_loops import WeightLoops
from edgetrain_tuner.schedule import Parameters, ScheduleRefusedError, Values


@dataclass(frozen=True, kw_only=True)
class _Variant:
    """What the two rules differ in. `tiling` is a module: `convolution_tiling` or `weights_tiling`."""

    computed: str
    find: Callable[[Contraction], WinogradForm | None]
    vector_axis: Callable[[WinogradForm], Axis]  # what vectors run along
    tiling: Any
    loops: Callable[[WinogradForm, Any, Machine], Any]


class _Rule:
    """Declines where the direct way is faster by the models of both, and where scratch does not fit."""

    def __init__(self, variant: _Variant) -> None:
        self._variant = variant

    def names(self, _kernel: Kernel) -> Sequence[str]:
        names: Sequence[str] = self._variant.tiling.PARAMETERS
        return names

    def propose(self, kernel: Kernel, machine: Machine) -> Parameters | None:
        form = self._form(kernel)
        if form is None or form.contraction.multiply_adds < machine.thresholds.winograd_multiply_adds:
            return None
        if self._variant.vector_axis(form).extent * 2 < machine.lanes:
            return None
        tiling = self._variant.tiling.choose_tiling(form, machine)
        if tiling is None or not is_faster(form, self._variant.tiling.cost(form, tiling, machine.costs), machine):
            return None
        parameters: Parameters = tiling.parameters
        return parameters

    def choices(self, kernel: Kernel, machine: Machine, name: str, before: Parameters) -> Sequence[Values]:
        form = self._form(kernel)
        found: Sequence[Values] = [] if form is None else self._variant.tiling.choices(form, machine, name, before)
        return found

    def check(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> None:
        self._tiled(kernel, machine, parameters)

    def write(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> Any:
        return self._variant.loops(*self._tiled(kernel, machine, parameters), machine).function()

    def _tiled(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> tuple[WinogradForm, Any]:
        form = self._form(kernel)
        if form is None:
            raise ScheduleRefusedError(f"the kernel is no {self._variant.computed} of 3 x 3 taps at stride 1")
        return form, self._variant.tiling.tiling_of(form, machine, parameters)

    def _form(self, kernel: Kernel) -> WinogradForm | None:
        return None if kernel.contraction is None else self._variant.find(kernel.contraction)


class Winograd(_Rule):
    """The rule for convolutions and their data gradients."""

    name = "winograd"

    def __init__(self) -> None:
        super().__init__(
            _Variant(
                computed="convolution",
                find=find_convolution,
                vector_axis=lambda form: form.filters,
                tiling=convolution_tiling,
                loops=WinogradLoops,
            )
        )


class WinogradWeights(_Rule):
    """The rule for weight gradients."""

    name = "winograd-weights"

    def __init__(self) -> None:
        super().__init__(
            _Variant(
                computed="weight gradient",
                find=find_weight_gradient,
                vector_axis=lambda form: form.channels,
                tiling=weights_tiling,
                loops=lambda form, tiling, _machine: WeightLoops(form, tiling),
            )
        )


def is_faster(form: WinogradForm, cost: float, machine: Machine) -> bool:
    """Whether the direct way, with its smaller scratch, takes clearly longer by the models of both."""
    sides = vector_sides(form.contraction.transposed()).values()
    direct = min(blocking.cost(side, blocking.choose_blocking(side, machine), machine).total for side in sides)
    return cost * machine.thresholds.winograd_speedup < direct
