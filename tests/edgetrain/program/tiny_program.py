"""A training program small enough to check by eye: loss = sum((x·w)²), a gradient, an update in place.

Its five plans compute the same; `h` is kept, recomputed, paged to an aligned place, or to an unaligned one, or the
parameters are in storage.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgetrain.cost.analytic import OpCost
from edgetrain.graph.ir import Op, Phase, Role, Tensor, TrainGraph, validate
from edgetrain.planner.make_plan import make_plan
from edgetrain.planner.plan import Budget, Compute, Free, FunctionPlan, PageIn, PageOut, Placement, Plan, Step
from edgetrain.program.artifact import Artifact, write_artifact
from edgetrain.program.emit_c import emit_driver
from edgetrain.program.library import build_library
from edgetrain.targets.device import Storage
from edgetrain.toolchain.c_compiler import Compiler, find_compiler
from edgetrain.units import Bytes, Joules, Seconds
from tests.edgetrain.processors import processor

COUNT = 1500
RATE = 0.5
KERNELS = Path(__file__).with_name("tiny_kernels.c")

Floats = npt.NDArray[np.float32]


def _tensor(name: str, role: Role, *, shape: tuple[int, ...] = (COUNT,)) -> Tensor:
    return Tensor(name=name, shape=shape, dtype="float32", role=role)


def tiny_graph() -> TrainGraph:
    tensors = (
        _tensor("w", Role.PARAMETER),
        _tensor("momentum", Role.STATE),
        _tensor("rate", Role.CONSTANT, shape=()),
        _tensor("x", Role.INPUT, shape=(3, COUNT // 3)),
        _tensor("loss", Role.OUTPUT, shape=()),
        *(_tensor(name, Role.TEMPORARY) for name in ("h", "square", "gradient")),
    )
    forward = (
        Op(
            name="multiply",
            kernel="tiny_multiply",
            reads=("x", "w"),
            writes=("h",),
            phase=Phase.FORWARD,
            source="/hidden/Mul",
        ),
        Op(
            name="square",
            kernel="tiny_square",
            reads=("h",),
            writes=("square",),
            scratch_bytes=(4 * COUNT,),
            phase=Phase.FORWARD,
        ),
        Op(name="sum", kernel="tiny_sum", reads=("square",), writes=("loss",), phase=Phase.LOSS),
    )
    backward = (
        Op(name="grad", kernel="tiny_gradient", reads=("h", "x"), writes=("gradient",), phase=Phase.BACKWARD),
        Op(name="update", kernel="tiny_update", reads=("gradient", "rate", "w"), writes=("w",), phase=Phase.UPDATE),
    )
    graph = TrainGraph(
        name="tiny", tensors={t.name: t for t in tensors}, functions={"step": forward + backward, "evaluate": forward}
    )
    validate(graph)
    return graph


PERSISTENT: Mapping[str, int] = {"w": 0, "momentum": 6016, "rate": 12032, "x": 12096, "loss": 18112}
PERSISTENT_BYTES = 18176
FIRST, SECOND, THIRD = 20480, 28672, 36864  # three places for a temporary, at page boundaries
ARENA_BYTES = 45056
STORING_BUDGET_BYTES = 29_000  # keep-all needs 36,224; with the parameter in memory, 30,208

_FORWARD: tuple[Step, ...] = (Compute("multiply"), Compute("square"), Compute("sum"))
_END: tuple[Step, ...] = (Compute("grad"), Free("h"), Compute("update"), Free("gradient"))


def stay(tensor: str, start: int, end: int, offset: int) -> Placement:
    return Placement(tensor=tensor, start=start, end=end, offset=offset, nbytes=4 * COUNT)


def keep() -> FunctionPlan:
    steps = (*_FORWARD, Free("square"), *_END)
    places = (stay("h", 0, 4, FIRST), stay("square", 1, 2, SECOND), stay("gradient", 4, 6, SECOND))
    return FunctionPlan(function="step", steps=steps, placements=(*places, stay("square#0", 1, 1, THIRD)))


def recompute() -> FunctionPlan:
    steps = (
        *(Compute("multiply"), Compute("square"), Free("h"), Compute("sum"), Free("square")),
        *(Compute("multiply"), *_END),
    )
    places = (
        *(stay("h", 0, 1, FIRST), stay("square", 1, 3, SECOND), stay("square#0", 1, 1, THIRD)),
        *(stay("h", 5, 6, SECOND), stay("gradient", 6, 8, FIRST)),
    )
    return FunctionPlan(function="step", steps=steps, placements=places)


def page(second_place: int = THIRD) -> FunctionPlan:
    steps = (
        *(Compute("multiply"), PageOut("h"), Compute("square"), Free("h"), Compute("sum"), Free("square")),
        *(PageIn("h"), *_END),
    )
    places = (
        *(stay("h", 0, 2, FIRST), stay("square", 2, 4, SECOND), stay("square#0", 2, 2, THIRD)),
        *(stay("h", 6, 7, second_place), stay("gradient", 7, 9, FIRST)),
    )
    return FunctionPlan(function="step", steps=steps, placements=places)


STEP_PLANS: Mapping[str, FunctionPlan] = {
    "keep": keep(),
    "recompute": recompute(),
    "page": page(),
    "page unaligned": page(SECOND + 64),
}


def tiny_plan(function_plan: FunctionPlan) -> Plan:
    evaluate = FunctionPlan(
        function="evaluate",
        steps=(*_FORWARD, Free("h"), Free("square")),
        placements=(stay("h", 0, 2, FIRST), stay("square", 1, 3, SECOND), stay("square#0", 1, 1, THIRD)),
    )
    return Plan(
        solver="by hand",
        budget=Budget(),
        functions={"step": function_plan, "evaluate": evaluate},
        persistent_offsets=PERSISTENT,
        persistent_bytes=PERSISTENT_BYTES,
        peak_bytes=ARENA_BYTES,
        lower_bound_bytes=ARENA_BYTES,
        seconds=0.25,
        joules=0.5,
    )


def initial_values() -> dict[str, npt.NDArray[np.generic]]:
    weights = np.arange(COUNT, dtype=np.float32) % 7
    return {"w": weights, "momentum": np.full(COUNT, 3, np.float32), "rate": np.array(RATE, np.float32)}


def some_input() -> Floats:
    """Small whole numbers: every float32 operation on them is exact, in any order."""
    return (np.arange(COUNT, dtype=np.float32) % 3).reshape(3, COUNT // 3)


def reference_step(weights: Floats, inputs: Floats) -> tuple[float, Floats]:
    """The loss and the new weights, by NumPy."""
    hidden = inputs.ravel() * weights
    return float(np.sum(hidden * hidden)), weights - np.float32(RATE) * (hidden * inputs.ravel())


def compile_object(compiler: Compiler, source: Path, out: Path) -> Path:
    """Kernels by hand in place of LLVM's."""
    position = [] if compiler.triple.is_bare_metal else ["-fPIC"]
    subprocess.run(
        [*compiler.command, "-std=c11", "-O2", "-g0", "-Wall", "-Wextra", *position, "-c", str(source), "-o", str(out)],
        env={**os.environ, **compiler.environment},
        check=True,
    )
    return out


def storing_plan() -> Plan:
    """A plan in less memory than parameters and state take: they live in storage."""
    graph = tiny_graph()
    cost = OpCost(seconds=Seconds(1.0), joules=Joules(1.0))
    costs = {function: {op.name: cost for op in ops} for function, ops in graph.functions.items()}
    card = Storage(
        read_bytes_per_s=1e4,
        write_bytes_per_s=1e4,
        joules_per_byte_read=0.0,
        joules_per_byte_written=0.0,
        latency_s=0.0,
    )
    return make_plan(graph, Budget(memory_bytes=Bytes(STORING_BUDGET_BYTES)), costs, storage=card)


PLANS: Mapping[str, Callable[[], Plan]] = {
    **{name: functools.partial(tiny_plan, function_plan) for name, function_plan in STEP_PLANS.items()},
    "store": storing_plan,
}


def build_tiny(
    directory: Path,
    plan: Plan,
    compiler: Compiler,
    *,
    threads: bool = True,
    profile: bool = False,
    target: str = "host",
) -> Artifact:
    """Compiles kernels and driver and writes the artifact `directory/program`."""
    directory.mkdir(parents=True, exist_ok=True)
    kernels = compile_object(compiler, KERNELS, directory / "kernels.o")
    driver = emit_driver(tiny_graph(), plan)
    library = build_library(
        driver_c=driver,
        kernels=kernels,
        out=directory / "library",
        threads=threads,
        profile=profile,
        compiler=compiler,
    )
    return write_artifact(
        directory / "program",
        graph=tiny_graph(),
        plan=plan,
        library=library,
        driver_c=driver,
        parameters=initial_values(),
        target_name=target,
        codegen=processor(),
        versions={"compiler": compiler.version},
    )


@functools.cache
def host_compiler() -> Compiler:
    return find_compiler()


@functools.cache
def tiny_artifact(function_plan: str, *, threads: bool = True, spare_bytes: int = 0) -> Artifact:
    """The program of that name in `PLANS` for this machine: compiled once in a session, then shared and not changed.

    `spare_bytes` at the arena's end are planned and never used.
    """
    directory = Path(tempfile.mkdtemp(prefix="edgetrain-tiny-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    plan = PLANS[function_plan]()
    return build_tiny(
        directory, replace(plan, peak_bytes=plan.peak_bytes + spare_bytes), host_compiler(), threads=threads
    )
