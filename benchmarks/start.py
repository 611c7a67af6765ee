"""Time from nothing to the first step's loss: cold (empty build cache) and warm, each in a process of its own.

python -m benchmarks.start [--json FILE] [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import fill_inputs, prepare, run_in_child, show_table, stepper, write_json
from edgetrain.graph.options import OptimizerOptions, TrainOptions
from edgetrain.program.cache import BuildCache
from edgetrain.run.engine import LOSS, scalar
from edgetrain.run.local import LocalEngine

MODELS = ("digits-cnn", "digits-cnn-bn")
CLASSES = 10


def first_step(model: str, cache: str) -> dict[str, Any]:
    """Seconds until the first loss is known, from after the imports."""
    started = time.perf_counter()
    options = TrainOptions(batch=32, optimizer=OptimizerOptions(kind="sgd", momentum=0.9))
    prepared = prepare(model, f"zoo:{model}", options, cache=BuildCache(Path(cache)))
    program = prepared.program(prepared.plan())
    with LocalEngine(program, threads=1, page_directory=Path(cache)) as engine:
        fill_inputs(engine, prepared.compiled, classes=CLASSES)
        stepper(engine)()
        return {"seconds": time.perf_counter() - started, "loss": scalar(engine.tensor(LOSS))}


def measure(model: str, rounds: int) -> dict[str, object]:
    cold: list[float] = []
    warm: list[float] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            for samples in (cold, warm):
                samples.append(float(run_in_child("benchmarks.start", {"model": model, "cache": cache})["seconds"]))
    cold_s, warm_s = statistics.median(cold), statistics.median(warm)
    return {
        "model": model,
        "cold_seconds": cold_s,
        "warm_seconds": warm_s,
        "ratio": cold_s / warm_s,
        "cold_spread": (max(cold) - min(cold)) / cold_s,
        "warm_spread": (max(warm) - min(warm)) / warm_s,
        "n": rounds,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(first_step(**json.loads(options.child))))
        return 0
    rows = [measure(model, options.rounds) for model in MODELS]
    show_table(rows, ("model", "cold_seconds", "warm_seconds", "ratio", "cold_spread", "warm_spread", "n"))
    if options.json:
        write_json(options.json, "start", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
