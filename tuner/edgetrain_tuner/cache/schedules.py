"""The schedule inside an entry: the parameters of a rule, or the instructions of a trace. Data only, nothing that runs.

A rule's name is any short word here: which rules there are, and what their parameters mean, is for whoever applies them
to know (`versions.rules` of the entry says in which version). A trace holds instruction kinds from a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgetrain_tuner.cache.fields import Wrong, integer, list_of, number, read_object, table_of, text

TRACE = "trace"
# What a scheduled loop nest is made of. Kinds that call out (`Tensorize`, `Call`) or that only postprocessors write
# (`EnterPostproc`) are left out: postprocessors run again wherever a trace is applied.
INSTRUCTION_KINDS = frozenset(
    {
        "AddUnitLoop",
        "Annotate",
        "CacheRead",
        "CacheWrite",
        "ComputeAt",
        "ComputeInline",
        "DecomposeReduction",
        "Fuse",
        "GetChildBlocks",
        "GetConsumers",
        "GetLoops",
        "GetProducers",
        "GetSBlock",
        "Parallel",
        "RFactor",
        "Reorder",
        "ReverseComputeAt",
        "ReverseComputeInline",
        "SampleCategorical",
        "SampleComputeLocation",
        "SamplePerfectTile",
        "Split",
        "StorageAlign",
        "Unannotate",
        "Unroll",
        "Vectorize",
    }
)
_INTEGER = integer(-(2**31), 2**31)
_PARAMETERS = table_of(text(r"[a-z0-9_-]{1,40}", "named with small letters"), list_of(_INTEGER, most=16), most=32)
_WORD = text(r"[A-Za-z0-9_.-]{0,64}", "a word")
_PROBABILITY = number(0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSchedule:
    """Parameters of a rule that is known by name."""

    rule: str
    parameters: Mapping[str, tuple[int, ...]]

    def to_json(self) -> dict[str, object]:
        return {"rule": self.rule, "parameters": {name: list(values) for name, values in self.parameters.items()}}


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSchedule:
    """TVM's own JSON form: instructions as (kind, inputs, attributes, outputs), decisions as (index, value)."""

    instructions: tuple[tuple[Any, ...], ...]
    decisions: tuple[tuple[Any, ...], ...]

    @property
    def rule(self) -> str:
        return TRACE

    def to_json(self) -> dict[str, object]:
        return {"rule": TRACE, "instructions": _lists(self.instructions), "decisions": _lists(self.decisions)}


Schedule = RuleSchedule | TraceSchedule


def read_schedule(value: object, *, mistakes: list[str]) -> Schedule | None:
    if isinstance(value, dict) and value.get("rule") == TRACE:
        readers = {
            "rule": _WORD,
            "instructions": list_of(_instruction, most=128),
            "decisions": list_of(_decision, most=64),
        }
        fields = read_object(value, readers, where="schedule", mistakes=mistakes)
        if fields is None:
            return None
        return TraceSchedule(instructions=fields["instructions"], decisions=fields["decisions"])
    readers = {"rule": text(r"[a-z0-9-]{1,40}", "a rule's name"), "parameters": _PARAMETERS}
    fields = read_object(value, readers, where="schedule", mistakes=mistakes)
    return None if fields is None else RuleSchedule(**fields)


def _instruction(value: object) -> tuple[Any, ...]:
    if not isinstance(value, list) or len(value) != 4 or not isinstance(value[0], str):
        raise Wrong("[kind, inputs, attributes, outputs]")
    if value[0] not in INSTRUCTION_KINDS:
        raise Wrong("an instruction of a kind we know")
    return (value[0], *(list_of(_argument, most=32)(part) for part in value[1:]))


def _argument(value: object) -> object:
    return list_of(_scalar, most=32)(value) if isinstance(value, list) else _scalar(value)


def _scalar(value: object) -> object:
    match value:
        case None | bool():
            return value
        case int():
            return _INTEGER(value)
        case float():
            return _PROBABILITY(value)
    return _WORD(value)


def _decision(value: object) -> tuple[Any, ...]:
    if not isinstance(value, list) or len(value) != 2:
        raise Wrong("[index, decision]")
    index = integer(0, 127)(value[0])
    return (index, list_of(_INTEGER, most=16)(value[1]) if isinstance(value[1], list) else _INTEGER(value[1]))


def _lists(value: object) -> object:
    return [_lists(item) for item in value] if isinstance(value, tuple) else value
