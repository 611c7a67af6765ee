"""Compares planned with measured memory, and measures what a tight budget costs in time.

    python -m benchmarks.memory [--json FILE] [--models digits-cnn-bn,...]

For each model and budget a row has the planned peak, the bytes of the arena that were touched, how much the process
grew, and the time of a step relative to keeping everything, timed in turns. Each row is measured in its own process.
The benchmark ends with an error if a promise does not hold: measured ≤ planned ≤ budget, and the process grows by what
was planned for it (arena, code, stacks) within 10 %.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import onnx

from benchmarks.measure import (
    Prepared,
    fill_inputs,
    prepare,
    run_in_child,
    show_table,
    stepper,
    time_in_turns,
    write_json,
)
from edgetrain.errors import PlanInfeasibleError
from edgetrain.graph.ir import LEARNING_RATE, STEP
from edgetrain.graph.options import OptimizerOptions, TrainOptions
from edgetrain.locate import user_cache_dir
from edgetrain.model.zoo import small_cnn
from edgetrain.program.process_memory import planned_process_bytes
from edgetrain.run.engines.local import LocalEngine
from edgetrain.run.loop.warm_up import warm_up_mathematics
from edgetrain.run.sensors.process_memory import grown_bytes, reset_peak, resident

ROUNDS = 12
CLASSES = 10
GROWTH_TOLERANCE = 0.10
_SGD = OptimizerOptions(kind="sgd", momentum=0.9)
# Shares of the way from the smallest budget to keep-all's memory.
_SHARES = (0.0, 0.25, 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    source: str
    options: TrainOptions
    classes: int | None = None


def _wide_cnn() -> onnx.ModelProto:
    return small_cnn("wide-cnn", image=(3, 64, 64), channels=(32, 64, 64, 128), pool_after=(1, 3), batch_norm=True)


def _subjects() -> Mapping[str, Subject]:
    frozen = TrainOptions(batch=8, optimizer=OptimizerOptions(kind="sgd"), batchnorm="frozen")
    return {
        "digits-cnn-bn": Subject(source="zoo:digits-cnn-bn", options=TrainOptions(batch=32, optimizer=_SGD)),
        "wide-cnn": Subject(source=str(_saved("wide-cnn", _wide_cnn())), options=TrainOptions(batch=8, optimizer=_SGD)),
        "efficientnet-lite0": Subject(source="zoo:efficientnet-lite0", options=frozen, classes=CLASSES),
    }


def _saved(name: str, model: onnx.ModelProto) -> Path:
    path = user_cache_dir() / "benchmarks" / f"{name}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString(deterministic=True))
    return path


def _prepare(name: str) -> Prepared:
    subject = _subjects()[name]
    return prepare(name, subject.source, subject.options, classes=subject.classes)


def budgets_of(prepared: Prepared) -> list[int | None]:
    """No budget, then from loose to the smallest that has a plan."""
    keep_all = prepared.plan(allowed_slowdown=0.0).peak_bytes
    least = _smallest_budget(prepared, prepared.plan(allowed_slowdown=0.0).persistent_bytes, keep_all)
    return [None, *(round(least + share * (keep_all - least)) for share in reversed(_SHARES))]


def _smallest_budget(prepared: Prepared, infeasible: int, feasible: int) -> int:
    """Within 1 % of the smallest that has a plan, by halving."""
    while feasible - infeasible > 0.01 * feasible:
        middle = (infeasible + feasible) // 2
        try:
            prepared.plan(middle)
        except PlanInfeasibleError:
            infeasible = middle
        else:
            feasible = middle
    return feasible


def measure_growth(name: str, budget: int | None) -> dict[str, Any]:
    """What the arena and the process used for three steps; meant for a fresh process."""
    prepared = _prepare(name)
    program = prepared.program(prepared.plan(budget, allowed_slowdown=0.0))
    (model_input,) = prepared.compiled.facts["inputs"]
    planned_process = planned_process_bytes(program, threads=1)
    warm_up_mathematics()
    with tempfile.TemporaryDirectory() as pages:
        before = resident()
        can_reset = reset_peak()
        with LocalEngine(program, threads=1, page_directory=Path(pages)) as engine:
            # Plain numbers: a random generator would bring code of its own into memory.
            engine.tensor(model_input["name"]).fill(0.5)
            engine.tensor(LEARNING_RATE).fill(1e-4)
            for _ in range(3):
                engine.call(STEP)
            return {
                "planned_peak_bytes": program.manifest.planned_peak_bytes,
                "planned_process_bytes": planned_process,
                "measured_peak_bytes": engine.measured_peak_bytes(),
                "process_growth_bytes": grown_bytes(before) if can_reset else None,
            }


def measure_slowdown(prepared: Prepared, budget: int | None, rounds: int) -> dict[str, object]:
    """A step under the budget against a step that keeps everything, in turns."""
    with tempfile.TemporaryDirectory() as pages, ExitStack() as stack:
        open_engine = partial(LocalEngine, threads=1, page_directory=Path(pages))
        keep = stack.enter_context(open_engine(prepared.program(prepared.plan(allowed_slowdown=0.0))))
        fill_inputs(keep, prepared.compiled, classes=CLASSES)
        if budget is None:
            timing = time_in_turns({"keep-all": stepper(keep)}, rounds=rounds)["keep-all"]
            return {"seconds": timing.seconds, "slowdown": 1.0, "spread": timing.spread, "n": timing.n}
        tight = stack.enter_context(open_engine(prepared.program(prepared.plan(budget, allowed_slowdown=0.0))))
        fill_inputs(tight, prepared.compiled, classes=CLASSES)
        both = time_in_turns({"keep-all": stepper(keep), "budget": stepper(tight)}, rounds=rounds)
        timing = both["budget"]
        slowdown = timing.seconds / both["keep-all"].seconds
        return {"seconds": timing.seconds, "slowdown": slowdown, "spread": timing.spread, "n": timing.n}


def broken_promises(row: Mapping[str, Any]) -> list[str]:
    """What a row proves wrong, in words; empty when every promise held."""
    planned, measured = row["planned_peak_bytes"], row["measured_peak_bytes"]
    process, growth = row["planned_process_bytes"], row["process_growth_bytes"]
    where = f"{row['model']} in {row['budget']}"
    rules = (
        (measured > planned, f"{where}: measured {measured:,} bytes, planned {planned:,}"),
        (row["budget"] is not None and planned > row["budget"], f"{where}: planned {planned:,} bytes"),
        (
            growth is not None and abs(growth - process) > GROWTH_TOLERANCE * process,
            f"{where}: the process grew by {growth} bytes, planned {process:,}",
        ),
    )
    return [text for broken, text in rules if broken]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--models", default=",".join(_subjects()), help="comma-separated (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(measure_growth(**json.loads(options.child))))
        return 0
    rows: list[dict[str, object]] = []
    for name in options.models.split(","):
        prepared = _prepare(name)
        for budget in budgets_of(prepared):
            grown = run_in_child("benchmarks.memory", {"name": name, "budget": budget})
            rows.append(
                {"model": name, "budget": budget, **grown, **measure_slowdown(prepared, budget, options.rounds)}
            )
    bytes_columns = ("planned_peak_bytes", "measured_peak_bytes", "planned_process_bytes", "process_growth_bytes")
    show_table(rows, ("model", "budget", *bytes_columns, "slowdown", "seconds", "spread"))
    if options.json:
        write_json(options.json, "memory", rows)
    broken = [text for row in rows for text in broken_promises(row)]
    print("\n".join(broken) if broken else "measured ≤ planned ≤ budget in every row")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
