"""The schedule inside an entry: the parameters of a rule. Data only, nothing that runs.

A rule's name is any short word here: which rules there are, and what their parameters mean, is for whoever applies them
to know (`versions.rules` of the entry says in which version).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgetrain_tuner.cache.fields import integer, list_of, read_object, table_of, text

_INTEGER = integer(-(2**31), 2**31)
_PARAMETERS = table_of(text(r"[a-z0-9_-]{1,40}", "named with small letters"), list_of(_INTEGER, most=16), most=32)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSchedule:
    """Parameters of a rule that is known by name."""

    rule: str
    parameters: Mapping[str, tuple[int, ...]]

    def to_json(self) -> dict[str, object]:
        return {"rule": self.rule, "parameters": {name: list(values) for name, values in self.parameters.items()}}


def read_schedule(value: object, *, mistakes: list[str]) -> RuleSchedule | None:
    readers = {"rule": text(r"[a-z0-9-]{1,40}", "a rule's name"), "parameters": _PARAMETERS}
    fields = read_object(value, readers, where="schedule", mistakes=mistakes)
    return None if fields is None else RuleSchedule(**fields)
