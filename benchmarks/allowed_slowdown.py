"""Measures what a plan without a budget saves and costs: time and memory of a step, relative to keeping everything.

    python -m benchmarks.allowed_slowdown [--models resnet-18:4,...] [--threads 1,2]
        [--shares 0.02,0.05,0.1] [--json [FILE]]

A share is the part of a step's modelled time that recomputing may cost; the default of `fit` is one of them. For each
share, the plan is compiled and run in turns with the plan that keeps everything. `planned_slowdown` is modelled,
`slowdown` is measured.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.measure import add_json_option, publish, stepper, time_in_turns
from benchmarks.needs import missing_weights, require
from benchmarks.step import Trial
from benchmarks.step_models import SUBJECTS, chosen
from edgetrain.planner.solvers.options import USUAL

COLUMNS = (
    *("model", "batch", "threads", "share", "kept_bytes", "peak_bytes", "memory", "planned_slowdown", "slowdown"),
    *("spread", "kept_spread"),
)


def measure(trial: Trial, threads: int, shares: Sequence[float], rounds: int) -> list[dict[str, object]]:
    """A row for each share."""
    plans = {share: trial.prepared.plan(allowed_slowdown=share) for share in (0.0, *shares)}
    # Shares that come to the same plan have one program.
    first = {share: next(other for other in plans if plans[other] == plan) for share, plan in plans.items()}
    with ExitStack() as stack:
        steps = {
            share: stepper(stack.enter_context(trial.engine_of(plans[share], threads)))
            for share in dict.fromkeys(first.values())
        }
        measured = time_in_turns({f"{share}": step for share, step in steps.items()}, rounds=rounds)
    timings = {share: measured[f"{first[share]}"] for share in plans}
    kept, kept_s = plans[0.0], timings[0.0]
    return [
        {
            "model": trial.subject.model,
            "batch": trial.subject.batch,
            "threads": threads,
            "share": share,
            "kept_bytes": kept.peak_bytes,
            "peak_bytes": plans[share].peak_bytes,
            "memory": plans[share].peak_bytes / kept.peak_bytes,
            "planned_slowdown": plans[share].seconds / kept.seconds,
            "slowdown": timings[share].seconds / kept_s.seconds,
            "spread": timings[share].spread,
            "kept_spread": kept_s.spread,
            "n": kept_s.n,
        }
        for share in shares
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    models = ",".join(subject.name for subject in SUBJECTS)
    parser.add_argument("--models", default=models, help="comma-separated MODEL or MODEL:BATCH (default: %(default)s)")
    parser.add_argument("--threads", default="1,2", help="comma-separated (default: %(default)s)")
    parser.add_argument("--shares", default=f"0.02,{USUAL.allowed_slowdown},0.1", help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=10)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    shares = [float(share) for share in options.shares.split(",")]
    rows: list[dict[str, object]] = []
    subjects = chosen(options.models.split(","))
    require(missing_weights(subjects))
    for subject in subjects:
        with tempfile.TemporaryDirectory() as folder:
            trial = Trial.of(subject, Path(folder))
            for count in (int(count) for count in options.threads.split(",")):
                rows += measure(trial, count, shares, options.rounds)
                print(f"{subject.name} on {count} threads measured", file=sys.stderr)
    publish("allowed_slowdown", rows, COLUMNS, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
