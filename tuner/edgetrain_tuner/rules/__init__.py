"""Schedule rules: what each proposes without a search, and how a schedule that is plain data is applied.

The first rule with a proposal wins; the generic rule always has one. A faster rule for a kernel family is one more
file here and one more entry in the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from edgetrain_tuner.elementary import as_arithmetic
from edgetrain_tuner.features import Features
from edgetrain_tuner.rules.channelwise import Channelwise
from edgetrain_tuner.rules.contraction import MINIMUM_LANES, find
from edgetrain_tuner.rules.generic import Generic
from edgetrain_tuner.rules.meta_schedule import MetaSchedule
from edgetrain_tuner.rules.packed_product import PackedProduct
from edgetrain_tuner.rules.plane_sums import PlaneSums
from edgetrain_tuner.rules.pooling import Pooling
from edgetrain_tuner.rules.register_tile import RegisterTile
from edgetrain_tuner.rules.rows import Rows
from edgetrain_tuner.rules.rule import Kernel, Rule, neighbours_of, refitted
from edgetrain_tuner.rules.scatter import Scatter
from edgetrain_tuner.rules.winograd import Winograd, WinogradWeights
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


def schedule(function: Any, features: Features) -> Any:
    """The scheduled PrimFunc from the first rule that knows `function`: no search, no cache."""
    return scheduled(function, features)[1]


def scheduled(function: Any, features: Features, wanted: Schedule | None = None) -> tuple[Schedule, Any]:
    """The schedule and the scheduled PrimFunc: `wanted`, refitted where it must be, or what the first rule proposes.

    Raises `ScheduleRefusedError` as `refit` does. The kernel is analysed once, which is most of the work.
    """
    kernel = _analysed(function, features)
    if wanted is None:
        chosen = next(_proposed(kernel, features))
    else:
        rule = _rule(wanted)
        chosen = Schedule(rule.name, refitted(rule, kernel, features, wanted.parameters))
    return chosen, _written(kernel, chosen, features)


def propose(function: Any, features: Features) -> Sequence[Schedule]:
    """A schedule from each rule that knows `function`; the first is the one that `schedule` applies."""
    return list(_proposed(_analysed(function, features), features))


def writes_by_element(function: Any, features: Features) -> bool:
    """Whether the rule that `schedule` applies finishes each element where it is summed: nothing in between is kept."""
    kernel = _analysed(function, features)
    first = next(_proposed(kernel, features))
    return first.rule != Generic.name or Generic().finishes_elements(kernel, features)


def apply(function: Any, schedule: Schedule, features: Features) -> Any:
    """The scheduled PrimFunc. Raises `ScheduleRefusedError` where the schedule does not fit kernel or target."""
    return _written(_analysed(function, features), schedule, features)


def neighbours(function: Any, schedule: Schedule, features: Features) -> list[tuple[str, Schedule]]:
    """Schedules that differ by one parameter, with its name: all of them fit.

    Parameters that depend on it move along where they must.
    """
    rule, kernel = _rule(schedule), _analysed(function, features)
    return [
        (name, Schedule(rule.name, parameters))
        for name, parameters in neighbours_of(rule, kernel, features, schedule.parameters)
    ]


def refit(function: Any, schedule: Schedule, features: Features) -> Schedule:
    """The nearest schedule that fits: for one that was made for another kernel or another target.

    Raises `ScheduleRefusedError` where its rule cannot write the kernel, or does not exist.
    """
    rule = _rule(schedule)
    return Schedule(rule.name, refitted(rule, _analysed(function, features), features, schedule.parameters))


def _analysed(function: Any, features: Features) -> Kernel:
    return Kernel(function=function, contraction=find(function) if features.lanes >= MINIMUM_LANES else None)


def _proposed(kernel: Kernel, features: Features) -> Iterator[Schedule]:
    for rule in RULES:
        parameters = rule.propose(kernel, features)
        if parameters is not None:
            yield Schedule(rule.name, parameters)


def _written(kernel: Kernel, schedule: Schedule, features: Features) -> Any:
    return as_arithmetic(_rule(schedule).write(kernel, features, schedule.parameters), features)


def _rule(schedule: Schedule) -> Rule:
    for rule in RULES:
        if rule.name == schedule.rule:
            return rule
    raise ScheduleRefusedError(f"there is no rule `{schedule.rule}`")
