"""The rule for sums over images and planes, one for each channel, distributed by images: statistics of batch norms.

Convolutions and elementwise kernels distribute images to cores. If a core summed some channels of all images instead,
it would read cache lines that other cores have written, and the next kernel would have to take them back. On cores that
share no cache, the kernels before and after took several times as long (ADR 0028). So each task sums its own images for
all channels, and the few sums are added at the end, in a fixed order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad

from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import Axis, replaced, uses, values_of
from edgetrain_tuner.rules.loops import REGISTERS, Loops, digits_of, sequence
from edgetrain_tuner.rules.reduction.form import Reduction, analyzer_of, find_reduction, loads_of
from edgetrain_tuner.rules.rule import Kernel
from edgetrain_tuner.schedule import Parameters, ScheduleRefusedError, Values, require_names

PARAMETERS = ("tasks",)


class PlaneSums:
    """The rule. It declines where there is one core, or too few images to distribute evenly."""

    name = "plane-sums"

    def names(self, _kernel: Kernel) -> Sequence[str]:
        return PARAMETERS

    def propose(self, kernel: Kernel, machine: Machine) -> Parameters | None:
        choices = self.choices(kernel, machine, "tasks", {})
        return {"tasks": choices[-1]} if choices else None

    def choices(self, kernel: Kernel, machine: Machine, _name: str, _before: Parameters) -> Sequence[Values]:
        sums = _sums(kernel)
        if sums is None or sums.work < machine.thresholds.parallel_iterations:
            return []
        most_uneven = machine.thresholds.uneven_images
        fair = [tasks for tasks in range(1, machine.cores + 1) if sums.is_fair(tasks, most_uneven)]
        return [(tasks,) for tasks in fair] if len(fair) > 1 else []

    def check(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> None:
        self._checked(kernel, machine, parameters)

    def write(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> Any:
        return self._checked(kernel, machine, parameters).written(parameters["tasks"][0])

    def _checked(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> Sums:
        require_names(parameters, PARAMETERS)
        sums = _sums(kernel)
        if sums is None:
            raise ScheduleRefusedError("the kernel sums up no planes of images")
        if parameters["tasks"] not in self.choices(kernel, machine, "tasks", {}):
            raise ScheduleRefusedError(f"no {list(parameters['tasks'])} tasks on {machine.cores} cores")
        return sums


@dataclass(frozen=True, kw_only=True)
class Sums:
    """For each place of the reduction's axes, the sum of `term` over images and planes, in the order of memory."""

    reduction: Reduction
    term: Any

    @property
    def images(self) -> Axis:
        return self.reduction.taps[0]

    @property
    def plane(self) -> tuple[Axis, ...]:
        return self.reduction.taps[1:]

    @property
    def work(self) -> int:
        return math.prod(axis.extent for axis in (*self.reduction.axes, *self.reduction.taps))

    def is_fair(self, tasks: int, most_uneven: float) -> bool:
        """Whether no task gets more than so many times its share of the images."""
        return tasks * -(-self.images.extent // tasks) <= most_uneven * self.images.extent

    def written(self, tasks: int) -> Any:
        """The kernel with its loops."""
        reduction = self.reduction
        loops = Loops(str(self.images.variable.ty.dtype))
        extents = [axis.extent for axis in reduction.axes]
        own = tirx.decl_buffer((tasks, math.prod(extents)), "float32", "own")

        def clear(task: Any) -> Any:
            zero = tirx.FloatImm("float32", 0.0)
            return loops.loop("clear", math.prod(extents), lambda at: tirx.BufferStore(own, zero, [task, at]))

        def image(task: Any, number: Any) -> Any:
            def place(at: Any) -> Any:
                values = values_of(reduction.axes, digits_of(at, extents))
                return self._add(loops, own, [task, at], {**values, self.images.variable: number})

            return loops.loop("place", math.prod(extents), place)

        def keep(at: Any) -> Any:
            total = own[loops.number(0), at]
            for task in range(1, tasks):
                total = total + own[loops.number(task), at]
            known = {at: math.prod(extents)} if math.prod(extents) > 1 else {}
            return reduction.kept(digits_of(at, extents), total, analyzer_of(known))

        shared = loops.distribute(self.images.extent, tasks, lambda task: [clear(task)], image)
        kept = loops.loop("kept", math.prod(extents), keep)
        return reduction.rewritten(sequence(tirx.AllocBuffer(own), shared, kept))

    def _add(self, loops: Loops, own: Any, at: Sequence[Any], values: Mapping[Any, Any]) -> Any:
        """Adds one plane to what a task has for one place."""
        extents = [axis.extent for axis in self.plane]
        so_far = tirx.decl_buffer((1,), "float32", "so_far", scope=REGISTERS)
        zero = loops.number(0)

        def element(number: Any) -> Any:
            term = replaced(self.term, {**values, **values_of(self.plane, digits_of(number, extents))})
            return tirx.BufferStore(so_far, so_far[zero] + term, [zero])

        return sequence(
            tirx.AllocBuffer(so_far),
            tirx.BufferStore(so_far, own[tuple(at)], [zero]),
            loops.loop("element", math.prod(extents), element),
            tirx.BufferStore(own, so_far[zero], list(at)),
        )


def _sums(kernel: Kernel) -> Sums | None:
    found: Sums | None = kernel.derived(PlaneSums.name, lambda: find_sums(kernel.function))
    return found


def find_sums(function: Any) -> Sums | None:
    """None where the kernel is no such sum, or reads its planes in another order than that of memory."""
    reduction = find_reduction(function)
    if reduction is None or len(reduction.taps) < 2 or not reduction.axes:
        return None
    term = _term(reduction)
    if term is None or str(reduction.result.ty.dtype) != "float32":
        return None
    order = [axis.variable for axis in (reduction.taps[0], *reduction.axes, *reduction.taps[1:])]
    taps = [axis.variable for axis in reduction.taps]
    large = [load for load in loads_of(term) if any(uses(index, tap) for index in load.indices for tap in taps)]
    if not large or not all(_is_in_order(load, order) for load in large):
        return None
    return Sums(reduction=reduction, term=term)


def _term(reduction: Reduction) -> Any | None:
    """What is added for each tap; None where something else than adding is done, or not from zero on."""
    combined, start = reduction.combined, reduction.start
    if not isinstance(combined, tirx.Add) or not isinstance(start, tirx.FloatImm) or float(start.value) != 0.0:
        return None
    for total, term in ((combined.a, combined.b), (combined.b, combined.a)):
        is_total = isinstance(total, TensorLoad) and total.source.same_as(reduction.result)
        if is_total and not any(load.source.same_as(reduction.result) for load in loads_of(term)):
            return term
    return None


def _is_in_order(load: Any, order: Sequence[Any]) -> bool:
    return len(load.indices) == len(order) and all(i.same_as(v) for i, v in zip(load.indices, order, strict=True))
