"""What all benchmarks share: programs that are built once, medians with spread, the machine, tables, JSON.

Two things that are compared are timed in turns (one step of this, one of that), so that both run under the same load.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from edgetrain.compiler.compile import compile_graph
from edgetrain.compiler.compiled import Compiled
from edgetrain.compiler.request import CompileRequest, ModelSource
from edgetrain.cost.analytic import analytic_costs_by_function
from edgetrain.files.build_cache import BuildCache
from edgetrain.graph.ir import LABELS, LEARNING_RATE, STEP
from edgetrain.graph.options import TrainOptions
from edgetrain.locate import user_cache_dir
from edgetrain.planner.make_plan import make_plan
from edgetrain.planner.plan import Budget, Plan
from edgetrain.planner.solvers.options import USUAL
from edgetrain.program.artifact import Artifact
from edgetrain.program.build import build_program
from edgetrain.run.engines.engine import Array
from edgetrain.run.engines.local import LocalEngine
from edgetrain.targets.profile import HOST, load_target
from edgetrain.units import Bytes

_PACKAGES = ("edgetrain", "apache-tvm", "numpy", "onnx", "torch")
STANDARD_OUTPUT = "-"
_SETTLING_STEPS = 4  # of a turn after a rest
_CPUINFO = Path("/proc/cpuinfo")

Row = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds of one step: the median of `n` steps, and the middle half's width as a share of it."""

    seconds: float
    spread: float
    n: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Timing:
        """At least four samples, or there are no quartiles."""
        first, middle, third = statistics.quantiles(samples, n=4)
        return cls(seconds=middle, spread=(third - first) / middle, n=len(samples))


def time_in_turns(
    steps: Mapping[str, Callable[[], object]], *, rounds: int, warm_up: int = 2, rest_s: float = 0.0
) -> dict[str, Timing]:
    """Times every step once a round, in turns, after `warm_up` rounds that do not count.

    With `rest_s` everybody waits that long before a turn, for threads of one side look for work for a while after their
    step, and keep a core from the other's. The first steps of a turn then do not count: after the other side's turn
    both were seen to need some before their times stay the same.
    """
    samples: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(warm_up + rounds):
        for name, step in steps.items():
            if rest_s:
                time.sleep(rest_s)
                for _ in range(_SETTLING_STEPS):
                    step()
            started = time.perf_counter()
            step()
            if turn >= warm_up:
                samples[name].append(time.perf_counter() - started)
    return {name: Timing.of(s) for name, s in samples.items()}


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A model compiled for this host: any number of programs can be built from it."""

    name: str
    compiled: Compiled
    cache: BuildCache

    def plan(self, budget_bytes: int | None = None, *, allowed_slowdown: float = USUAL.allowed_slowdown) -> Plan:
        """As `fit` plans. Raises `PlanInfeasibleError` where the budget is too small."""
        graph = self.compiled.graph
        costs = analytic_costs_by_function(graph, load_target(HOST).device.rates)
        budget = Budget(memory_bytes=None if budget_bytes is None else Bytes(budget_bytes))
        return make_plan(graph, budget, costs, options=replace(USUAL, allowed_slowdown=allowed_slowdown))

    def program(self, plan: Plan, *, profile: bool = False) -> Artifact:
        """With `profile`, one that counts the seconds of each op."""
        codegen = load_target(HOST).device
        return build_program(self.compiled, plan, codegen, cache=self.cache, profile=profile)


def prepare(
    name: str,
    source: str,
    options: TrainOptions,
    *,
    classes: int | None = None,
    output: str = "",
    cache: BuildCache | None = None,
) -> Prepared:
    """Compiles the model (a path, or `zoo:NAME`), from the cache where it is there."""
    store = cache or BuildCache(user_cache_dir() / "builds")
    device = load_target(HOST).device
    request = CompileRequest(
        model=ModelSource(source=source, output=output, classes=classes),
        options=options,
        codegen=device.codegen,
        archives={device.name: device.codegen},
    )
    return Prepared(name=name, compiled=compile_graph(request, cache=store), cache=store)


def saved_model(name: str, model: onnx.ModelProto) -> Path:
    """The model as a file among the user's caches, the same bytes each time."""
    path = user_cache_dir() / "benchmarks" / f"{name}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString(deterministic=True))
    return path


def fill_inputs(engine: LocalEngine, compiled: Compiled, *, classes: int, seed: int = 0) -> tuple[Array, Array]:
    """Random data, labels and a small learning rate in the engine; returns copies of data and labels."""
    rng = np.random.default_rng(seed)
    (model_input,) = compiled.facts["inputs"]
    data, labels = engine.tensor(model_input["name"]), engine.tensor(LABELS)
    data[...] = rng.standard_normal(data.shape)
    labels[...] = rng.integers(0, classes, labels.shape)
    engine.tensor(LEARNING_RATE)[...] = 1e-4
    return data.copy(), labels.copy()


def stepper(engine: LocalEngine) -> Callable[[], None]:
    return lambda: engine.call(STEP)


def run_in_child(module: str, arguments: Mapping[str, object]) -> dict[str, Any]:
    """Runs `python -m module --child JSON` and reads one JSON object from its last line of output.

    Memory of a process is only comparable when nothing ran in it before.
    """
    command = [sys.executable, "-m", module, "--child", json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{module} failed for {json.dumps(arguments)}:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def machine() -> dict[str, object]:
    """Where the numbers come from."""
    lines = _CPUINFO.read_text().splitlines() if _CPUINFO.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def show_table(rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Prints the rows as a table on standard output."""
    cells = [list(columns), *([_cell(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for line in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.3g}"
        case int():
            return f"{value:,}"
        case _:
            return str(value)


def document(benchmark: str, rows: Sequence[Row]) -> str:
    """The rows as JSON, with the machine and the versions that gave them."""
    content = {"benchmark": benchmark, "machine": machine(), "versions": versions(), "rows": [dict(r) for r in rows]}
    return json.dumps(content, indent=1) + "\n"


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """`--json FILE` writes the rows to a file besides showing them, `--json` alone prints them instead."""
    parser.add_argument("--json", nargs="?", const=STANDARD_OUTPUT, metavar="FILE")


def publish(benchmark: str, rows: Sequence[Row], columns: Sequence[str], json_to: str | None) -> None:
    """The rows as a table on standard output, or as `add_json_option` says."""
    if json_to == STANDARD_OUTPUT:
        print(document(benchmark, rows), end="")
        return
    show_table(rows, columns)
    if json_to is not None:
        write_json(Path(json_to), benchmark, rows)


def write_json(path: Path, benchmark: str, rows: Sequence[Row]) -> None:
    path.write_text(document(benchmark, rows), encoding="utf-8")
