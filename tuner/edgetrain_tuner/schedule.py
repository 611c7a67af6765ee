"""A schedule as plain data: a rule's name and the numbers it is applied with. It can be stored, sent and compared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# What rules and their parameters mean. A change of meaning makes schedules that were stored before it useless.
RULES_VERSION = 1

Values = tuple[int, ...]
Parameters = Mapping[str, Values]


class ScheduleRefusedError(ValueError):
    """A schedule that does not fit its kernel or its target: an unknown rule or parameter, too many registers, ..."""


def require_names(parameters: Parameters, names: Sequence[str]) -> None:
    """Raises `ScheduleRefusedError` where the parameters are not exactly these."""
    if set(parameters) != set(names):
        raise ScheduleRefusedError(f"the parameters are {', '.join(names)}, not {', '.join(sorted(parameters))}")


def require_within(name: str, values: Values, most: Sequence[int]) -> Values:
    """The values, each from 1 to its limit. Raises `ScheduleRefusedError` otherwise."""
    if len(values) != len(most) or not all(1 <= value <= limit for value, limit in zip(values, most, strict=True)):
        raise ScheduleRefusedError(f"{name} is {list(values)}, not from 1 to {list(most)}")
    return values


@dataclass(frozen=True, slots=True)
class Schedule:
    """Equal schedules have equal canonical text, whatever the order of their parameters."""

    rule: str
    parameters: Parameters

    def canonical(self) -> str:
        parameters = {name: list(values) for name, values in self.parameters.items()}
        return json.dumps({"rule": self.rule, "parameters": parameters}, sort_keys=True, separators=(",", ":"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and self.canonical() == other.canonical()

    def __hash__(self) -> int:
        return hash(self.canonical())

    def __str__(self) -> str:
        values = (f"{name} {'x'.join(map(str, v))}" for name, v in self.parameters.items() if v)
        return " ".join((self.rule, *values))
