"""Planning problems from files: `edgetrain.plan-instance/1`, what others published, so that answers can be compared.

The rules are simpler than a real graph's. Every op makes one tensor and is computed at least once, in order; what it
reads is in memory then; the peak counts every tensor in memory while an op runs, with its output. Paging moves whole
tensors and costs joules only. There are no weights, no scratch and no alignment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from edgetrain.errors import DataError, InternalError
from edgetrain.files.texts import parse_json
from edgetrain.planner.plan import Compute, Free, PageIn, PageOut, Step
from edgetrain.planner.solvers.problem import NEVER, Problem, Transfers, producers_and_uses, recompute_limits
from edgetrain.units import Bytes, Joules, Seconds

FORMAT = "edgetrain.plan-instance/1"

Objective = Literal["joules", "seconds"]

_TOLERANCE = 1e-9  # of a deadline: sums of floats in another order


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceOp:
    name: str  # as published; not unique
    phase: str
    seconds: Seconds
    joules: Joules
    output_bytes: Bytes
    page_in_joules: Joules
    page_out_joules: Joules


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One question about an instance. `best` is the best answer known, None where there is none to compare with."""

    instance: Instance
    memory_bytes: Bytes
    deadline_s: Seconds | None
    allows_recomputing: bool
    allows_paging: bool
    minimize: Objective
    best: float | None = None
    is_proven: bool = False
    is_infeasible: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """Ops in an order that is valid as it stands; `sources[op]` lists the ops whose tensors it reads."""

    name: str
    ops: tuple[InstanceOp, ...]
    sources: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceReplay:
    peak_bytes: int
    seconds: float
    joules: float


def read_instance(text: str) -> tuple[Case, ...]:
    """Every case of an instance file, in the file's order. Raises `DataError` for anything but such a file."""
    try:
        data: dict[str, Any] = parse_json(text)
        if data["format"] != FORMAT:
            raise DataError(f"the file has format `{data['format']}`, not `{FORMAT}`", fix="give a plan instance")
        instance = _instance(data)
        return tuple(_case(instance, case) for case in data["cases"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            "this is not a plan instance", why=f"{type(error).__name__}: {error}", fix=f"see the format `{FORMAT}`"
        ) from error


def _instance(data: Mapping[str, Any]) -> Instance:
    ops = tuple(
        InstanceOp(
            name=str(op["name"]),
            phase=str(op["phase"]),
            seconds=Seconds(float(op["seconds"])),
            joules=Joules(float(op["joules"])),
            output_bytes=Bytes(int(op["output_bytes"])),
            page_in_joules=Joules(float(op["page_in_joules"])),
            page_out_joules=Joules(float(op["page_out_joules"])),
        )
        for op in data["ops"]
    )
    sources: list[set[int]] = [set() for _ in ops]
    for producer, consumer in data["edges"]:
        if not 0 <= producer < consumer < len(ops):
            raise DataError(
                f"edge {producer} -> {consumer} points backwards or outside of the {len(ops)} ops",
                fix="list the ops in topological order",
            )
        sources[consumer].add(producer)
    return Instance(name=str(data["name"]), ops=ops, sources=tuple(tuple(sorted(reads)) for reads in sources))


def _case(instance: Instance, data: Mapping[str, Any]) -> Case:
    objective: Mapping[str, Objective] = {"joules": "joules", "seconds": "seconds"}
    deadline_s, best = data["deadline_s"], data.get("best")
    return Case(
        instance=instance,
        memory_bytes=Bytes(int(data["memory_bytes"])),
        deadline_s=None if deadline_s is None else Seconds(float(deadline_s)),
        allows_recomputing="remat" in data["allow"],
        allows_paging="page" in data["allow"],
        minimize=objective[data["minimize"]],
        best=None if best is None else float(best),
        is_proven=bool(data.get("proven", False)),
        is_infeasible=bool(data.get("infeasible", False)),
    )


def instance_problem(case: Case) -> Problem:
    """The case as the solvers' integers. Op and tensor number i are both named `str(i)`."""
    ops, reads = case.instance.ops, case.instance.sources
    writes = tuple((op,) for op in range(len(ops)))
    producer, uses = producers_and_uses(reads, writes, len(ops))
    rerun_until = (NEVER if case.allows_recomputing else -1,) * len(ops)
    names = tuple(str(op) for op in range(len(ops)))
    sizes = tuple(int(op.output_bytes) for op in ops)
    return Problem(
        op_names=names,
        reads=reads,
        writes=writes,
        scratch_bytes=(0,) * len(ops),
        seconds=tuple(float(op.seconds) for op in ops),
        joules=tuple(float(op.joules) for op in ops),
        rerun_until=rerun_until,
        tensor_names=names,
        plain_bytes=sizes,
        paged_bytes=sizes,
        producer=producer,
        uses=uses,
        recompute_until=recompute_limits(rerun_until, reads, producer, uses),
        transfers=_transfers(ops) if case.allows_paging else None,
        dirties=((),) * len(ops),
    )


def _transfers(ops: Sequence[InstanceOp]) -> Transfers:
    no_time = (0.0,) * len(ops)
    return Transfers(
        is_worthwhile=tuple(op.output_bytes > 0 for op in ops),
        read_seconds=no_time,
        write_seconds=no_time,
        read_joules=tuple(float(op.page_in_joules) for op in ops),
        write_joules=tuple(float(op.page_out_joules) for op in ops),
    )


def replay_instance(case: Case, steps: Sequence[Step]) -> InstanceReplay:
    """Walks a plan by the rules of the module's docstring, and adds up.

    Raises `InternalError` if a step breaks them. Whether the totals hold the case's limits is the caller's question.
    """
    ops, sources = case.instance.ops, case.instance.sources
    in_memory: set[int] = set()
    in_storage: set[int] = set()
    done = live_bytes = peak_bytes = 0
    seconds = joules = 0.0
    for number, step in enumerate(steps):
        index = int(step.op if isinstance(step, Compute) else step.tensor)
        op = ops[index]
        match step:
            case Compute():
                _require(index <= done, number, f"op {index} runs before op {done}")
                _require(index == done or case.allows_recomputing, number, f"op {index} runs again")
                _require(in_memory.issuperset(sources[index]), number, f"op {index} reads what is not in memory")
                done = max(done, index + 1)
                seconds, joules = seconds + op.seconds, joules + op.joules
            case PageIn():
                _require(index in in_storage and index not in in_memory, number, f"{index} cannot be paged in")
                joules += op.page_in_joules
            case PageOut():
                _require(case.allows_paging and index in in_memory, number, f"{index} cannot be paged out")
                in_storage.add(index)
                joules += op.page_out_joules
            case Free():
                _require(index in in_memory, number, f"{index} is freed but not in memory")
                in_memory.discard(index)
        if not isinstance(step, Free):
            in_memory.add(index)
        live_bytes = sum(ops[tensor].output_bytes for tensor in in_memory)
        peak_bytes = max(peak_bytes, live_bytes)
    _require(done == len(ops), len(steps), f"op {done} never runs")
    return InstanceReplay(peak_bytes=peak_bytes, seconds=seconds, joules=joules)


def _require(holds: bool, step: int, problem: str) -> None:
    if not holds:
        raise InternalError(f"invalid answer to a plan instance: step {step}: {problem}")


def cost_inside(case: Case, steps: Sequence[Step]) -> float | None:
    """What a plan costs in the case's objective, or None if it breaks the case's limits."""
    found = replay_instance(case, steps)
    if found.peak_bytes > case.memory_bytes:
        return None
    if case.deadline_s is not None and found.seconds > case.deadline_s * (1 + _TOLERANCE):
        return None
    return found.joules if case.minimize == "joules" else found.seconds
