"""Schedule rules: what each proposes without a search, and how a schedule, which is plain data, is applied.

The first rule in the table with a proposal wins; the generic rule always has one. A faster rule for a family of kernels
is one more file in the folder of that family and one more entry in the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from edgetrain_tuner.elementary import as_arithmetic
from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import find
from edgetrain_tuner.rules.generic import Generic
from edgetrain_tuner.rules.metaschedule.rule import MetaSchedule
from edgetrain_tuner.rules.product.packed_product import PackedProduct
from edgetrain_tuner.rules.product.register_tile import RegisterTile
from edgetrain_tuner.rules.reduction.plane_sums import PlaneSums
from edgetrain_tuner.rules.reduction.rows import Rows
from edgetrain_tuner.rules.reduction.scatter import Scatter
from edgetrain_tuner.rules.rule import Kernel, Rule, neighbours_of, refitted
from edgetrain_tuner.rules.window.channelwise import Channelwise
from edgetrain_tuner.rules.window.pooling import Pooling
from edgetrain_tuner.rules.winograd.rule import Winograd, WinogradWeights
from edgetrain_tuner.schedule import Schedule, ScheduleRefusedError

RULES: tuple[Rule, ...] = (
    Winograd(),
    WinogradWeights(),
    PackedProduct(),
    Channelwise(),
    Pooling(),
    Rows(),
    Scatter(),
    PlaneSums(),
    RegisterTile(),
    Generic(),
    MetaSchedule(),
)


def schedule(function: Any, machine: Machine) -> Any:
    """The scheduled PrimFunc from the first rule that knows `function`: no search, no cache."""
    return scheduled(function, machine)[1]


def scheduled(function: Any, machine: Machine, wanted: Schedule | None = None) -> tuple[Schedule, Any]:
    """The schedule and the scheduled PrimFunc: `wanted`, refitted where it must be, or what the first rule proposes.

    Raises `ScheduleRefusedError` as `refit` does. The kernel is analysed once, which is most of the work.
    """
    kernel = _analysed(function, machine)
    if wanted is None:
        chosen = next(_proposed(kernel, machine))
    else:
        rule = _rule(wanted)
        chosen = Schedule(rule.name, refitted(rule, kernel, machine, wanted.parameters))
    return chosen, _written(kernel, chosen, machine)


def propose(function: Any, machine: Machine) -> Sequence[Schedule]:
    """A schedule from each rule that knows `function`; the first is the one that `schedule` applies."""
    return list(_proposed(_analysed(function, machine), machine))


def writes_by_element(function: Any, machine: Machine) -> bool:
    """Whether the rule that `schedule` applies runs the epilogue on each sum at once, so that sums are never stored."""
    kernel = _analysed(function, machine)
    first = next(_proposed(kernel, machine))
    return first.rule != Generic.name or Generic().finishes_elements(kernel, machine)


def apply(function: Any, schedule: Schedule, machine: Machine) -> Any:
    """The scheduled PrimFunc. Raises `ScheduleRefusedError` where the schedule does not fit kernel or target."""
    return _written(_analysed(function, machine), schedule, machine)


def neighbours(function: Any, schedule: Schedule, machine: Machine) -> list[tuple[str, Schedule]]:
    """Schedules that differ by one parameter, with its name: all of them fit.

    Parameters that depend on it move along where they must.
    """
    rule, kernel = _rule(schedule), _analysed(function, machine)
    return [
        (name, Schedule(rule.name, parameters))
        for name, parameters in neighbours_of(rule, kernel, machine, schedule.parameters)
    ]


def refit(function: Any, schedule: Schedule, machine: Machine) -> Schedule:
    """The nearest schedule that fits: for one that was made for another kernel or another target.

    Raises `ScheduleRefusedError` where its rule cannot write the kernel, or does not exist.
    """
    rule = _rule(schedule)
    return Schedule(rule.name, refitted(rule, _analysed(function, machine), machine, schedule.parameters))


def _analysed(function: Any, machine: Machine) -> Kernel:
    return Kernel(function=function, contraction=find(function) if machine.has_vectors else None)


def _proposed(kernel: Kernel, machine: Machine) -> Iterator[Schedule]:
    for rule in RULES:
        parameters = rule.propose(kernel, machine)
        if parameters is not None:
            yield Schedule(rule.name, parameters)


def _written(kernel: Kernel, schedule: Schedule, machine: Machine) -> Any:
    return as_arithmetic(_rule(schedule).write(kernel, machine, schedule.parameters), machine)


def _rule(schedule: Schedule) -> Rule:
    for rule in RULES:
        if rule.name == schedule.rule:
            return rule
    raise ScheduleRefusedError(f"there is no rule `{schedule.rule}`")
