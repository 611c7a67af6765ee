"""Placement problems from files: `edgetrain.placement-instance/1`.

    {"format": "edgetrain.placement-instance/1", "name": "…",
     "ops": [{"name", "reads": [op, …], "output_bytes", "seconds": [cpu, gpu], "joules": [cpu, gpu]}, …],
     "copy": {"seconds_per_byte", "joules_per_byte"},
     "cases": [{"memory_bytes": [cpu, gpu], "minimize": "seconds"}, …]}

A price of null means that the op does not run on that device.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from edgetrain.errors import DataError
from edgetrain.files.texts import parse_json
from edgetrain.planner.placement.model import place
from edgetrain.planner.placement.problem import DEVICES, PlacedOp, PlacementProblem, replay_placement
from edgetrain.planner.references.instance_file import Objective
from edgetrain.units import Bytes

FORMAT = "edgetrain.placement-instance/1"

_OBJECTIVES: Mapping[str, Objective] = {"joules": "joules", "seconds": "seconds"}


def read_placements(text: str) -> tuple[PlacementProblem, ...]:
    """Every case of a placement file, in the file's order. Raises `DataError` for anything but such a file."""
    try:
        data: dict[str, Any] = parse_json(text)
        if data["format"] != FORMAT:
            raise DataError(f"the file has format `{data['format']}`, not `{FORMAT}`", fix="give a placement instance")
        ops = tuple(_op(index, op) for index, op in enumerate(data["ops"]))
        return tuple(_case(data, ops, case) for case in data["cases"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(
            "this is not a placement instance", why=f"{type(error).__name__}: {error}", fix=f"see the format `{FORMAT}`"
        ) from error


def solve_placement(problem: PlacementProblem, *, time_limit_s: float = 30.0) -> Mapping[str, object]:
    """The answer to one case as plain data, with the keys of a plan instance's; bytes are by device."""
    started_s = time.monotonic()
    answer = place(problem, time_limit_s=time_limit_s)
    elapsed_s = time.monotonic() - started_s
    found = None if answer.steps is None else replay_placement(problem, answer.steps)
    return {
        "memory_bytes": [int(limit) for limit in problem.memory_bytes],
        "objective": answer.cost,
        "peak_bytes": None if found is None else list(found.peak_bytes),
        "seconds": elapsed_s,
        "gap": answer.gap,
        "feasible": answer.steps is not None,
        "solver": "milp",
        "copies": None if found is None else found.copies,
        "runs_by_device": None if found is None else list(found.runs_by_device),
    }


def _op(index: int, data: Mapping[str, Any]) -> PlacedOp:
    reads = tuple(sorted({int(source) for source in data["reads"]}))
    if any(not 0 <= source < index for source in reads):
        raise DataError(f"op {index} reads an op that does not come before it", fix="list the ops in topological order")
    op = PlacedOp(
        name=str(data["name"]),
        reads=reads,
        output_bytes=Bytes(int(data["output_bytes"])),
        seconds=_prices(data["seconds"]),
        joules=_prices(data["joules"]),
    )
    if not any(op.runs_on(device) for device in DEVICES):
        raise DataError(f"op {index} runs on neither device", fix="give it a price on one of them")
    return op


def _prices(values: list[float | None]) -> tuple[float | None, float | None]:
    first, second = values
    return (None if first is None else float(first), None if second is None else float(second))


def _case(data: Mapping[str, Any], ops: tuple[PlacedOp, ...], case: Mapping[str, Any]) -> PlacementProblem:
    first, second = case["memory_bytes"]
    return PlacementProblem(
        name=str(data["name"]),
        ops=ops,
        memory_bytes=(Bytes(int(first)), Bytes(int(second))),
        copy_seconds_per_byte=float(data["copy"]["seconds_per_byte"]),
        copy_joules_per_byte=float(data["copy"]["joules_per_byte"]),
        minimize=_OBJECTIVES[case["minimize"]],
    )
