"""Measures the time to the first step's loss: cold (empty build cache) and warm, each in its own process.

    python -m benchmarks.start [--json FILE] [--models small-cnn,...] [--rounds N]

The time begins with the start of the process. It includes Python's imports, the model's import, planning, kernels,
linking and the step itself.
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

from benchmarks.measure import run_in_child, show_table, stepper, write_json
from benchmarks.needs import missing_weights, require
from benchmarks.step_models import chosen, fill, made_batch
from edgetrain.files.build_cache import BuildCache
from edgetrain.graph.ir import LOSS
from edgetrain.run.engines.engine import scalar
from edgetrain.run.engines.local import LocalEngine
from edgetrain.targets.profile import HOST, load_target

MODELS = ("mlp", "small-cnn", "efficientnet-lite0")
COLUMNS = ("model", "batch", "cold_seconds", "warm_seconds", "ratio", "cold_spread", "warm_spread", "n")


def first_step(model: str, cache: str, started_s: float) -> dict[str, Any]:
    """Seconds until the first loss is known, since `started_s` on the clock that processes share."""
    (subject,) = chosen([model])
    prepared = subject.prepare(BuildCache(Path(cache)))
    program = prepared.program(prepared.plan())
    inputs = [str(i["name"]) for i in prepared.compiled.facts["inputs"]]
    threads = load_target(HOST).device.codegen.cores
    with LocalEngine(program, threads=threads, page_directory=Path(cache)) as engine:
        fill(engine, made_batch(prepared.compiled.graph, inputs), inputs[0])
        stepper(engine)()
        return {"loss": scalar(engine.tensor(LOSS)), "seconds": time.clock_gettime(time.CLOCK_MONOTONIC) - started_s}


def measure(model: str, rounds: int) -> dict[str, object]:
    cold: list[float] = []
    warm: list[float] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            for samples in (cold, warm):
                started_s = time.clock_gettime(time.CLOCK_MONOTONIC)
                found = run_in_child("benchmarks.start", {"model": model, "cache": cache, "started_s": started_s})
                samples.append(float(found["seconds"]))
    cold_s, warm_s = statistics.median(cold), statistics.median(warm)
    (subject,) = chosen([model])
    return {
        "model": model,
        "batch": subject.batch,
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
    parser.add_argument("--models", default=",".join(MODELS), help="comma-separated (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(first_step(**json.loads(options.child))))
        return 0
    require(missing_weights(chosen(options.models.split(","))))
    rows = [measure(model, options.rounds) for model in options.models.split(",")]
    show_table(rows, COLUMNS)
    if options.json:
        write_json(options.json, "start", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
