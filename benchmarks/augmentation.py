"""Trains on few digits with and without augmentation, side by side, and prints the accuracy on the test part.

    python -m benchmarks.augmentation [--json [FILE]] [--samples N] [--epochs N] [--seeds N]

The model, the optimizer and the samples are the same in every row; a seed decides the weights at first, the order of
the batches and what augmentation draws. As in every run, the epoch that is best on the held-out part
is tested.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.measure import add_json_option, publish
from edgetrain.pipeline.fit import fit
from edgetrain.pipeline.job import Job
from edgetrain.recipes import load_recipe
from edgetrain.targets.profile import HOST, load_target

_MOVED = ("data.augment.shift=0.1", "data.augment.rotate=15")
CASES: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "shift": _MOVED[:1],
    "rotate": _MOVED[1:],
    "cutout": ("data.augment.cutout=0.25",),
    "mixup": ("data.augment.mixup=0.2",),
    "shift and rotate": _MOVED,
    "shift, rotate and cutout": (*_MOVED, "data.augment.cutout=0.25"),
    "shift, rotate and mixup": (*_MOVED, "data.augment.mixup=0.2"),
}


def measure(overrides: Sequence[str], *, samples: int, epochs: int, seed: int) -> float:
    """Accuracy on the whole test part."""
    fixed = (f"data.limit={samples}", f"train.epochs={epochs}", f"train.seed={seed}", "train.batch=16")
    recipe = load_recipe("digits", (*fixed, *overrides))
    with tempfile.TemporaryDirectory() as folder:
        report = fit(Job(recipe=recipe, target=load_target(HOST), threads=1), Path(folder) / "run")
    return float(report.test["accuracy"])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_json_option(parser)
    parser.add_argument("--samples", type=int, default=200, help="training samples, a tenth of them held out")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(arguments)
    rows: list[dict[str, object]] = []
    found: dict[str, list[float]] = {name: [] for name in CASES}
    for seed in range(options.seeds):  # seed by seed: a run that is stopped has compared the same seeds
        for name, overrides in CASES.items():
            value = measure(overrides, samples=options.samples, epochs=options.epochs, seed=seed)
            found[name].append(value)
            print(f"seed {seed}, {name}: {value:.3f}", file=sys.stderr, flush=True)
    for name, values in found.items():
        row = {"augmentation": name, "n": len(values), "mean": statistics.mean(values)}
        rows.append({**row, "least": min(values), "most": max(values), "by_seed": values})
    publish("augmentation", rows, ("augmentation", "n", "mean", "least", "most"), options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
