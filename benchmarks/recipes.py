"""Runs every recipe with several seeds, and compares the result with what its file promises.

    python -m benchmarks.recipes [--json FILE] [--seeds N] [--only NAME]

Each recipe runs unchanged. `train.seed` decides the order of the batches and the weights of a new head, not the split
of the data. If a recipe's data or weights are not installed, it is skipped, and the command that installs them is
printed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import show_table, write_json
from edgetrain.errors import DataError, ModelError
from edgetrain.pipeline.fit import fit
from edgetrain.pipeline.job import Job
from edgetrain.recipes import list_recipes, load_recipe
from edgetrain.targets.profile import HOST, load_target


def measure(name: str, seed: int, *, threads: int) -> float:
    """The recipe's metric on its test part. Raises `DataError` or `ModelError` where something is not installed."""
    recipe = load_recipe(name, (f"train.seed={seed}",))
    with tempfile.TemporaryDirectory() as folder:
        report = fit(Job(recipe=recipe, target=load_target(HOST), threads=threads), Path(folder) / "run")
    return float(report.test[recipe.metric])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each recipe (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="NAME", help="only recipes whose name holds this")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    rows: list[dict[str, object]] = []
    for name in list_recipes():
        if options.only not in name:
            continue
        try:
            found = [measure(name, seed, threads=options.threads) for seed in range(options.seeds)]
        except (DataError, ModelError) as error:
            print(f"{name}: left out; {error.fix}", file=sys.stderr)
            continue
        expect = load_recipe(name).expect
        rows.append(
            {
                "recipe": name,
                "n": len(found),
                "expect": expect,
                "mean": statistics.mean(found),
                "least": min(found),
                "most": max(found),
                "is_met": expect is None or min(found) >= expect,
                "by_seed": found,
            }
        )
        print(f"{name}: {', '.join(f'{value:.3f}' for value in found)}", file=sys.stderr, flush=True)
    show_table(rows, ("recipe", "n", "expect", "mean", "least", "most", "is_met"))
    if options.json:
        write_json(options.json, "recipes", rows)
    return 0 if all(row["is_met"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
