"""Deep schedules at random: what MetaSchedule could propose, good or bad."""

from __future__ import annotations

import random
from typing import Any

from edgetrain_tuner import rules
from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.metaschedule.design_space import DesignSpaces
from edgetrain_tuner.rules.metaschedule.rule import NAME, parameters_of
from edgetrain_tuner.schedule import Schedule, ScheduleRefusedError

_ATTEMPTS = 50


def drawn(function: Any, seed: object, machine: Machine) -> Schedule:
    """A schedule that the rule accepts. Raises `ScheduleRefusedError` for a kernel without a design space."""
    spaces, choose = DesignSpaces(function, machine.cores), random.Random(f"{seed}")
    for _ in range(_ATTEMPTS):
        number = choose.randrange(len(spaces))
        try:
            written = spaces.write(number, lambda question: choose.choice(list(question.choices())))
            schedule = Schedule(NAME, parameters_of(number, written.decisions))
            rules.apply(function, schedule, machine)
        except ScheduleRefusedError:
            continue
        return schedule
    raise AssertionError("no schedule fits")
