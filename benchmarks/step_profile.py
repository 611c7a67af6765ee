"""Shows where the time of our training step goes, kernel by kernel.

The time of a kernel is the median over some steps of a program that counts it, with the step's own data and threads.
Calls of the same kernel on the same shapes share one row, which names the first of them. Arithmetic is what the kernel
has to compute. Bytes are what it reads and writes at least once, scratch included. A kernel with GF/s far below the
machine's peak and GB/s far below the memory's rate could be faster.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.step_models import Subject, fill, made_batch
from edgetrain.graph.ir import STEP, Op, TrainGraph
from edgetrain.run.engines.local import LocalEngine
from edgetrain.run.engines.profile import FunctionProfile, profile_function

COLUMNS = ("phase", "source", "kernel", "shapes", "calls", "seconds", "share", "gflops", "gbytes_per_s")


@dataclass(slots=True)
class _Group:
    """Ops that call one kernel on tensors of the same shapes."""

    first: Op
    shapes: str
    seconds: float = 0.0
    flops: int = 0
    moved_bytes: int = 0
    calls: int = 0


def profiled(subject: Subject, threads: int, *, rounds: int) -> list[dict[str, object]]:
    """A row for each kernel and shape of the step, the slowest first, and one for all of them at the end."""
    prepared = subject.prepare()
    inputs = [str(i["name"]) for i in prepared.compiled.facts["inputs"]]
    graph = prepared.compiled.graph
    program = prepared.program(prepared.plan(), profile=True)
    with (
        tempfile.TemporaryDirectory() as pages,
        LocalEngine(program, threads=threads, page_directory=Path(pages)) as engine,
    ):
        fill(engine, made_batch(graph, inputs), inputs[0])
        found = profile_function(engine, graph, STEP, rounds=rounds)
    return [{"model": subject.model, "batch": subject.batch, "threads": threads, **row} for row in rows(graph, found)]


def rows(graph: TrainGraph, found: FunctionProfile) -> list[dict[str, object]]:
    """The profile of `graph`'s step as rows."""
    groups: dict[tuple[str, str], _Group] = {}
    for op in graph.functions[STEP]:
        shapes = _shapes(graph, op)
        group = groups.setdefault((op.kernel, shapes), _Group(op, shapes))
        group.seconds += found.op_seconds[op.name]
        group.flops += op.flops
        group.moved_bytes += graph.bytes_moved(op)
        group.calls += 1
    slowest_first = sorted(groups.values(), key=lambda group: -group.seconds)
    return [*(_row(group, found.call_s) for group in slowest_first), _total(slowest_first, found)]


def _row(group: _Group, step_s: float) -> dict[str, object]:
    return {
        "phase": str(group.first.phase),
        "source": group.first.source,
        "kernel": group.first.kernel,
        "shapes": group.shapes,
        "calls": group.calls,
        **_rates(group.seconds, group.flops, group.moved_bytes, step_s),
    }


def _total(groups: Sequence[_Group], found: FunctionProfile) -> dict[str, object]:
    """The whole step: its seconds are those of the call, what no kernel took included."""
    flops = sum(group.flops for group in groups)
    moved = sum(group.moved_bytes for group in groups)
    calls = sum(group.calls for group in groups)
    in_kernels = sum(group.seconds for group in groups)
    return {
        "phase": "step",
        "source": "",
        "kernel": f"all, {in_kernels / found.call_s:.1%} of it in kernels",
        "shapes": "",
        "calls": calls,
        **_rates(found.call_s, flops, moved, found.call_s),
    }


def _rates(seconds: float, flops: int, moved_bytes: int, step_s: float) -> dict[str, object]:
    return {
        "seconds": seconds,
        "share": seconds / step_s,
        "gflops": flops / seconds / 1e9 if seconds > 0 else None,
        "gbytes_per_s": moved_bytes / seconds / 1e9 if seconds > 0 else None,
        "flops": flops,
        "bytes": moved_bytes,
    }


def _shapes(graph: TrainGraph, op: Op) -> str:
    """Of what it reads and writes: `4x64x56x56,64x64x3x3>4x64x56x56`."""
    sides = (
        ",".join("x".join(map(str, graph.tensors[n].shape)) or "1" for n in side) for side in (op.reads, op.writes)
    )
    return ">".join(sides)
