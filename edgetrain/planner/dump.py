"""A plan as canonical JSON (`3-plan.json`), and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from edgetrain.errors import InternalError
from edgetrain.files.texts import parse_json
from edgetrain.planner.plan import Budget, Compute, Free, FunctionPlan, PageIn, PageOut, Placement, Plan, Step
from edgetrain.units import Bytes, Joules, Seconds

FORMAT = "edgetrain.plan/1"

_STEPS: Mapping[str, type[Compute] | type[Free] | type[PageOut] | type[PageIn]] = {
    "compute": Compute,
    "free": Free,
    "page-out": PageOut,
    "page-in": PageIn,
}


def to_json(plan: Plan) -> str:
    """Canonical text: the same plan gives the same bytes."""
    data = {
        "format": FORMAT,
        "solver": plan.solver,
        "budget": {
            "memory_bytes": plan.budget.memory_bytes,
            "energy_j": plan.budget.energy_j,
            "deadline_s": plan.budget.deadline_s,
            "written_bytes": plan.budget.written_bytes,
        },
        "persistent_offsets": dict(plan.persistent_offsets),
        "persistent_bytes": plan.persistent_bytes,
        "saved_bytes": plan.saved_bytes,
        "peak_bytes": plan.peak_bytes,
        "beside_bytes": plan.beside_bytes,
        "lower_bound_bytes": plan.lower_bound_bytes,
        "seconds": plan.seconds,
        "joules": plan.joules,
        "written_bytes": plan.written_bytes,
        "keep_all_bytes": plan.keep_all_bytes,
        "keep_all_seconds": plan.keep_all_seconds,
        "stored": list(plan.stored),
        "gap": plan.gap,
        "schedules": {name: _function_to_data(function) for name, function in plan.functions.items()},
    }
    return json.dumps(data, indent=1) + "\n"


def from_json(text: str) -> Plan:
    """The inverse of `to_json`. Raises `InternalError` for anything else."""
    try:
        return _read(parse_json(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InternalError(f"the plan is broken: {type(error).__name__}: {error}") from error


def _read(data: Mapping[str, Any]) -> Plan:
    if data.get("format") != FORMAT:
        raise InternalError(f"plan has format `{data.get('format')}`, this version reads `{FORMAT}`")
    budget = data["budget"]
    return Plan(
        solver=data["solver"],
        budget=Budget(
            memory_bytes=None if budget["memory_bytes"] is None else Bytes(budget["memory_bytes"]),
            energy_j=None if budget["energy_j"] is None else Joules(budget["energy_j"]),
            deadline_s=None if budget["deadline_s"] is None else Seconds(budget["deadline_s"]),
            written_bytes=None if budget.get("written_bytes") is None else Bytes(budget["written_bytes"]),
        ),
        functions={name: _function_from_data(name, function) for name, function in data["schedules"].items()},
        persistent_offsets=data["persistent_offsets"],
        persistent_bytes=data["persistent_bytes"],
        saved_bytes=data["saved_bytes"],
        peak_bytes=data["peak_bytes"],
        beside_bytes=data.get("beside_bytes", 0),
        lower_bound_bytes=data["lower_bound_bytes"],
        seconds=data["seconds"],
        joules=data["joules"],
        written_bytes=data.get("written_bytes", 0),
        keep_all_bytes=data["keep_all_bytes"],
        keep_all_seconds=data["keep_all_seconds"],
        stored=tuple(data["stored"]),
        gap=data["gap"],
    )


def _function_to_data(function: FunctionPlan) -> dict[str, Any]:
    word = {kind: name for name, kind in _STEPS.items()}
    return {
        "steps": [[word[type(step)], step.op if isinstance(step, Compute) else step.tensor] for step in function.steps],
        "placements": [
            {"tensor": p.tensor, "start": p.start, "end": p.end, "offset": p.offset, "nbytes": p.nbytes}
            for p in function.placements
        ],
    }


def _function_from_data(function: str, data: Mapping[str, Any]) -> FunctionPlan:
    steps: list[Step] = []
    for word, name in data["steps"]:
        if word not in _STEPS:
            raise InternalError(f"plan has an unknown step `{word}` in `{function}`")
        steps.append(_STEPS[word](name))
    placements = tuple(Placement(**p) for p in data["placements"])
    return FunctionPlan(function=function, steps=tuple(steps), placements=placements)
