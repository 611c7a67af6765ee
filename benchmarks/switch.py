"""Measures a switch to another plan between two steps: how long it takes, and how much memory it returns.

    python -m benchmarks.switch [--json FILE] [--rounds N]

For each model, one process switches between a program that keeps everything and the smallest plan, after each step. A
row has the seconds of the switch in both directions beside the seconds of a step. It also has the resident arena and
the resident memory of the whole process, as the system counts both, after a step under each plan.

The benchmark ends with an error in three cases: the smaller plan uses more memory than planned, the process does not
shrink by as much as the arena (within 5 %), or the parameters differ in a bit from those of a run that kept its plan.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from benchmarks.measure import Prepared, Row, Timing, fill_inputs, prepare, show_table, stepper, write_json
from edgetrain.cost.analytic import analytic_costs_by_function
from edgetrain.graph.options import OptimizerOptions, TrainOptions
from edgetrain.planner.make_plan import smallest_plan
from edgetrain.planner.plan import Budget
from edgetrain.program.artifact import Artifact
from edgetrain.run.engines.local import LocalEngine
from edgetrain.run.sensors.process_memory import resident_bytes
from edgetrain.targets.profile import HOST, load_target

ROUNDS = 12
CLASSES = 10
_TOLERANCE = 0.05
_SGD = OptimizerOptions(kind="sgd", momentum=0.9)
_SUBJECTS: Mapping[str, TrainOptions] = {
    "zoo:digits-cnn-bn": TrainOptions(batch=1024, optimizer=_SGD),
    "zoo:efficientnet-lite0": TrainOptions(batch=4, optimizer=_SGD, batchnorm="frozen"),
}


def programs(prepared: Prepared) -> tuple[Artifact, Artifact]:
    """The one that keeps everything, and the smallest."""
    graph = prepared.compiled.graph
    costs = analytic_costs_by_function(graph, load_target(HOST).device.rates)
    return prepared.program(prepared.plan(allowed_slowdown=0.0)), prepared.program(
        smallest_plan(graph, Budget(), costs)
    )


def undisturbed(prepared: Prepared, program: Artifact, steps: int) -> bytes:
    """The parameters after so many steps without a switch."""
    with (
        tempfile.TemporaryDirectory() as pages,
        LocalEngine(program, threads=1, page_directory=Path(pages)) as engine,
    ):
        fill_inputs(engine, prepared.compiled, classes=CLASSES)
        for _ in range(steps):
            engine.call("step")
        return bytes(engine.saved)


def measure(prepared: Prepared, *, rounds: int) -> Row:
    large, small = programs(prepared)
    down: list[float] = []
    up: list[float] = []
    arena = {"large": 0, "small": 0}
    process = {"large": 0, "small": 0}
    taken: list[float] = []
    with tempfile.TemporaryDirectory() as pages, LocalEngine(large, threads=1, page_directory=Path(pages)) as engine:
        fill_inputs(engine, prepared.compiled, classes=CLASSES)
        step = stepper(engine)
        for _ in range(rounds):
            for name, seconds, following in (("large", down, small), ("small", up, large)):
                taken.append(_timed(step))
                arena[name] = engine.measured_peak_bytes()
                process[name] = resident_bytes() or 0
                seconds.append(_timed(partial(engine.switch, following)))
        saved = bytes(engine.saved)
    timed = {name: Timing.of(samples) for name, samples in (("down", down), ("up", up), ("step", taken))}
    shrunk, given = process["large"] - process["small"], arena["large"] - arena["small"]
    return {
        "model": prepared.name,
        "keep-all MB": arena["large"] / 1e6,
        "smallest MB": arena["small"] / 1e6,
        "planned MB": small.manifest.planned_peak_bytes / 1e6,
        "process shrank MB": shrunk / 1e6,
        "down ms": timed["down"].seconds * 1e3,
        "spread": timed["down"].spread,
        "up ms": timed["up"].seconds * 1e3,
        "spread of it": timed["up"].spread,
        "step ms": timed["step"].seconds * 1e3,
        "n": rounds,
        "is within plan": arena["small"] <= small.manifest.planned_peak_bytes,
        "came back": abs(shrunk - given) <= _TOLERANCE * given,
        "bit-identical": saved == undisturbed(prepared, large, 2 * rounds),
    }


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--models", default=",".join(_SUBJECTS))
    arguments = parser.parse_args()
    rows = []
    for source in arguments.models.split(","):
        classes = CLASSES if source == "zoo:efficientnet-lite0" else None
        prepared = prepare(source.removeprefix("zoo:"), source, _SUBJECTS[source], classes=classes)
        rows.append(measure(prepared, rounds=arguments.rounds))
    show_table(rows, list(rows[0]))
    if arguments.json is not None:
        write_json(arguments.json, "switch", rows)
    broken = [row for row in rows if not (row["is within plan"] and row["came back"] and row["bit-identical"])]
    for row in broken:
        print(f"a promise was broken: {row['model']}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
