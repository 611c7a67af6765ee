"""Compares four update modes of MiniLM for the spam recipe, by held-out accuracy over several seeds.

    python -m benchmarks.minilm [--json FILE] [--seeds N] [--modes head,lora] [--threads N]

The recipe is `minilm-spam`, with one epoch over its 540 mails and with 1,000 held-out mails. All modes see the same
mails in the same order, and start from the same new head for each seed. The split of the data does not depend on the
seed. Only the learning rates differ. They were not searched for: 0.01 for the head alone, as in the recipe, and less
for modes that change pretrained weights. Needs what the recipe needs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.measure import show_table, write_json
from edgetrain.pipeline.fit import fit
from edgetrain.pipeline.job import Job
from edgetrain.recipes import load_recipe
from edgetrain.run.files.report import RunReport
from edgetrain.targets.profile import HOST, load_target

RECIPE = "minilm-spam"
SHARED = ("train.epochs=1", "data.test_limit=1000")
MODES: Mapping[str, tuple[str, ...]] = {
    "head": ("update.mode=head", "train.learning_rate=0.01"),
    "lora": ("update.mode=lora", 'update.names=["head.*"]', "train.learning_rate=0.002"),
    "bias": ("update.mode=names", 'update.names=["*.bias", "head.*"]', "train.learning_rate=0.002"),
    "full": ("update.mode=full", "train.learning_rate=0.0001"),
}


def train(mode: str, seed: int, *, threads: int) -> RunReport:
    """One run, its files thrown away."""
    recipe = load_recipe(RECIPE, (*SHARED, *MODES[mode], f"train.seed={seed}"))
    with tempfile.TemporaryDirectory() as folder:
        return fit(Job(recipe=recipe, target=load_target(HOST), threads=threads), Path(folder) / "run")


def summary(mode: str, reports: Sequence[RunReport]) -> dict[str, object]:
    """One row: the accuracy over seeds, and what a step takes."""
    found = [float(report.test["accuracy"]) for report in reports]
    return {
        "mode": mode,
        "n": len(found),
        "accuracy": statistics.mean(found),
        "least": min(found),
        "most": max(found),
        "seconds_per_step": statistics.median(r.seconds_per_step or 0.0 for r in reports),
        "peak_mb": reports[0].measured_peak_bytes / 1e6,
        "by_seed": found,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each mode (default: %(default)s)")
    parser.add_argument("--modes", default=",".join(MODES), help="which, with commas (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    rows = []
    for mode in options.modes.split(","):
        reports = []
        for seed in range(options.seeds):
            reports.append(train(mode, seed, threads=options.threads))
            accuracy = reports[-1].test["accuracy"]
            print(f"{mode}, seed {seed}: {accuracy:.3f}", file=sys.stderr, flush=True)
        rows.append(summary(mode, reports))
        if options.json:
            write_json(options.json, "minilm", rows)  # after each mode: the later ones take long
    show_table(rows, ("mode", "n", "accuracy", "least", "most", "seconds_per_step", "peak_mb"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
