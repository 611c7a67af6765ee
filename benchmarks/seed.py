"""Makes the seed: schedules for the recipes' kernels that ship with edgetrain, found on this machine.

    python -m benchmarks.seed [RECIPE ...] [--minutes M] [--cores N,N] [--output DIR]

Make it again after a new RULES_VERSION or a new TVM, on a quiet machine:

    python -m benchmarks.seed --output tuner/edgetrain_tuner/seed

Each recipe's step is tuned as `edgetrain tune` does, from an empty cache, once for each number of cores. The process is
bound to that many cores. A schedule is kept only if it was 1.05 times as fast as the rule's in three comparisons, each
timed in turns: in the search, in the real step, and in another comparison afterwards. If the whole step became no
faster, nothing is kept, because the machine was busy. Of an entry's measurements only the one with the smallest gain is
kept, without the machine's id.

The file of each recipe is replaced; it is empty if no schedule won. If a recipe's model cannot be built here, the
recipe is skipped and its file stays. No data is needed: steps run on made-up numbers.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import show_table
from edgetrain.compiler.schedules import RULE, KernelRecord, ScheduleStores
from edgetrain.errors import DataError, ModelError
from edgetrain.pipeline.job import Job
from edgetrain.pipeline.stages import compile_job
from edgetrain.recipes import Recipe, list_recipes, load_recipe
from edgetrain.targets.profile import HOST, load_target
from edgetrain.tuning.report import TuningReport
from edgetrain.tuning.tune import Allowance, tune
from edgetrain.tuning.verify import verify_schedules
from edgetrain_tuner.cache.entry import Entry, Provenance
from edgetrain_tuner.cache.jsonl import write_lines
from edgetrain_tuner.transfer import FASTER, identity

MARGIN = 1.05
_NOBODY = "0" * 16  # as the id of a machine


def winners(
    entries: Sequence[Entry],
    report: TuningReport,
    records: Mapping[str, KernelRecord],
    again: Mapping[str, float],
) -> list[Entry]:
    """What won by the margin in the search, in the step (`report`) and `again` (speedup by id); one for each kernel.

    Nothing where the whole step is no faster: then its parts cannot be believed either.
    """
    if report.speedup <= 1.0:
        return []
    in_step = {
        identity(records[row.symbol].workload) for row in report.kernels if row.source != RULE and row.speedup >= MARGIN
    }
    best: dict[tuple[object, ...], tuple[float, Entry]] = {}
    for entry in sorted(entries, key=lambda entry: entry.id):
        kernel = identity(entry.workload)
        least = min(again.get(entry.id, 0.0), *(m.speedup for m in entry.measurements), float("inf"))
        if entry.outcome != FASTER or kernel not in in_step or least < MARGIN:
            continue
        if kernel not in best or least > best[kernel][0]:
            best[kernel] = (least, entry)
    return [entry for _, entry in best.values()]


def reduced(entry: Entry, recipe: str) -> Entry:
    """The entry with only its measurement of the smallest gain; of its origin only the recipe and the tool."""
    least = min(entry.measurements, key=lambda measurement: (measurement.speedup, measurement.order))
    return dataclasses.replace(
        entry,
        measurements=(dataclasses.replace(least, machine=_NOBODY),),
        provenance=Provenance(model=recipe, who="", tool="edgetrain benchmarks.seed"),
    )


def seed_of(recipe: Recipe, *, seconds: float) -> tuple[list[Entry], dict[str, object]]:
    """A recipe's entries for this machine as it is bound now, and a row about them."""
    with tempfile.TemporaryDirectory(prefix="edgetrain-seed-") as folder:
        stores = ScheduleStores(folder=Path(folder))
        job = Job(recipe=recipe, target=load_target(HOST), stores=stores)
        records = compile_job(dataclasses.replace(job, schedules={})).compiled.schedules
        report = tune(job, Allowance(seconds=seconds), today=datetime.date.today().isoformat())
        verified = verify_schedules(job)
        with stores.opened() as levels:
            entries = list(levels.user)
    again = {one.entry: one.outcome.speedup for one in verified.tried}
    kept = [reduced(entry, recipe.name) for entry in winners(entries, report, records, again)]
    row = {
        "recipe": recipe.name,
        "cores": job.device.codegen.cores,
        "kernels": len(records),
        "trials": report.trials,
        "faster": sum(entry.outcome == FASTER for entry in entries),
        "kept": len(kept),
        "step": report.speedup,
    }
    return kept, row


@contextmanager
def bound_to(cores: int) -> Iterator[None]:
    """This process and those that it starts, on so many of the cores that it has: targets and threads follow."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", metavar="RECIPE", help="all of them without one")
    parser.add_argument("--minutes", type=float, default=3.0, help="of search for a recipe and a number of cores")
    parser.add_argument("--cores", default="1,2", help="comma-separated (default: %(default)s)")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    options = parser.parse_args(arguments)
    has = len(os.sched_getaffinity(0))
    counts = [count for count in map(int, options.cores.split(",")) if count <= has]
    rows: list[dict[str, object]] = []
    for name in options.recipes or list_recipes():
        found: dict[str, Entry] = {}
        try:
            for count in counts:
                with bound_to(count):
                    kept, row = seed_of(load_recipe(name), seconds=options.minutes * 60)
                found |= {entry.id: entry for entry in kept}
                rows.append(row)
                print(row, file=sys.stderr, flush=True)
        except (DataError, ModelError) as error:
            print(f"{name}: left out; {error.fix}", file=sys.stderr)
            continue
        write_lines(options.output / f"{name}.jsonl", (found[id_] for id_ in sorted(found)))
    show_table(rows, ("recipe", "cores", "kernels", "trials", "faster", "kept", "step"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
