"""The rule for schedules that MetaSchedule finds, as data: the number of a design space and the value of each decision.

It proposes nothing without a search, since TVM's spaces hold few good schedules among many. What a search found is
applied, moved, refitted and stored like the parameters of any other rule.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.metaschedule.design_space import MOST_DECISIONS, DesignSpaces, Question
from edgetrain_tuner.rules.metaschedule.generated_code import as_plain_loops, require_bounded
from edgetrain_tuner.rules.rule import Kernel
from edgetrain_tuner.schedule import Parameters, ScheduleRefusedError, Values

NAME = "meta-schedule"
SPACE = "space"


def decision_name(number: int) -> str:
    return f"decision-{number}"


def parameters_of(space: int, decisions: Sequence[Values]) -> dict[str, Values]:
    """A schedule's parameters. Raises `ScheduleRefusedError` for more decisions than a schedule may have."""
    if len(decisions) > MOST_DECISIONS:
        raise ScheduleRefusedError(f"it takes {len(decisions)} decisions, and a schedule has room for {MOST_DECISIONS}")
    return {SPACE: (space,), **{decision_name(number): values for number, values in enumerate(decisions)}}


class MetaSchedule:
    """`space` is the number of a design space, `decision-N` the value of its N-th sampling instruction.

    A tile is its factors, outermost first; a category its index; a location 0 for inlined, 1 for where it is, and n + 2
    for the n-th loop of its consumer.
    """

    @property
    def name(self) -> str:
        return NAME

    def names(self, kernel: Kernel) -> Sequence[str]:
        """As many as there can be; a space may have fewer."""
        return (SPACE, *(decision_name(number) for number in range(MOST_DECISIONS)))

    def propose(self, kernel: Kernel, machine: Machine) -> Parameters | None:
        return None

    def choices(self, kernel: Kernel, machine: Machine, name: str, before: Parameters) -> Sequence[Values]:
        spaces = _spaces(kernel, machine)
        if name == SPACE:
            return [(number,) for number in range(len(spaces))]
        known = [values for key, values in before.items() if key != SPACE]
        found: list[Values] = []

        def answer(question: Question) -> Values:
            if question.number < len(known):
                return known[question.number]
            found.extend(question.choices())
            raise _Known

        with contextlib.suppress(_Known):
            spaces.write(_number(before), answer)
        return found

    def check(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> None:
        self.write(kernel, machine, parameters)

    def write(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> Any:
        def answer(question: Question) -> Values:
            values = _wanted(parameters, question)
            if not question.is_answered_by(values):
                raise ScheduleRefusedError(f"{decision_name(question.number)} cannot be {list(values)}")
            return values

        written = _spaces(kernel, machine).write(_number(parameters), answer)
        if parameters_of(_number(parameters), written.decisions) != dict(parameters):
            raise ScheduleRefusedError("the decisions are not those of this kernel's design space")
        function = as_plain_loops(written.function, machine)
        require_bounded(function, machine)
        return function

    def carried_over(self, kernel: Kernel, machine: Machine, wanted: Parameters) -> dict[str, Values]:
        """Every tile to the nearest that divides the new extent, every location to the nearest loop there is."""
        spaces = _spaces(kernel, machine)
        space = min(_number(wanted), len(spaces) - 1)
        written = spaces.write(space, lambda question: question.nearest(_wanted(wanted, question)))
        parameters = parameters_of(space, written.decisions)
        self.check(kernel, machine, parameters)
        return parameters


class _Known(ScheduleRefusedError):
    """Ends the writing of a space where its question is answered."""


def _spaces(kernel: Kernel, machine: Machine) -> DesignSpaces:
    if kernel.inlined is None:
        raise ScheduleRefusedError("the kernel is plain loops: TVM's rules need blocks")
    spaces: DesignSpaces = kernel.derived((NAME, machine.cores), lambda: DesignSpaces(kernel.function, machine.cores))
    return spaces


def _number(parameters: Parameters) -> int:
    values = parameters.get(SPACE, ())
    if len(values) != 1 or values[0] < 0:
        raise ScheduleRefusedError(f"{SPACE} cannot be {list(values)}")
    return values[0]


def _wanted(parameters: Parameters, question: Question) -> Values:
    values = parameters.get(decision_name(question.number))
    if not values:
        raise ScheduleRefusedError(f"{decision_name(question.number)} is missing")
    return values
