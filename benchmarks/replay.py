"""Shows whether a refactoring still generates the same code: records hashes, and compares two records.

    python -m benchmarks.replay record before.json    # in the old tree
    python -m benchmarks.replay record after.json     # in the new one, on the same machine
    python -m benchmarks.replay compare before.json after.json

Hashes are of kernels, plans, drivers and trained parameters. Every recipe and every model of `benchmarks.step` is
compiled for this host and for two other targets, from an empty build cache, with the schedules of the rules and of the
shipped seed. For each target the record has the plan without a budget, plans for shares of its memory, and the drivers
emitted from them. Where no plan fits, it has the smallest budget that the error names. A few short runs record the hash
of the trained parameters. `compare` names each difference, and exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path

from benchmarks.step_models import CLASSES, SUBJECTS
from edgetrain.compiler.schedules import ScheduleStores
from edgetrain.errors import EdgetrainError, PlanInfeasibleError
from edgetrain.files.build_cache import BuildCache
from edgetrain.pipeline.fit import fit
from edgetrain.pipeline.job import Job
from edgetrain.pipeline.stages import CompiledJob, compile_job
from edgetrain.planner import dump as plan_dump
from edgetrain.planner.plan import Budget, Plan
from edgetrain.program.emit_c import emit_driver
from edgetrain.recipes import Recipe, list_recipes, load_recipe, recipe_for_model
from edgetrain.targets.profile import load_target
from edgetrain.toolchain.object_archive import read_archive
from edgetrain.units import Bytes
from edgetrain_tuner.cache.levels import SEED_FOLDER

TARGETS = ("host", "jetson", "cortex-m7")
SHARES = (0.8, 0.6)  # of what the plan without a budget takes
STEPS = 20  # of each short run
_RUNS: Mapping[str, tuple[str, tuple[str, ...], float | None]] = {
    "digits": ("digits", (), None),
    "digits in less": ("digits", (), 0.9),
    "digits with batch norms in less": ("digits", ("model.source=zoo:digits-cnn-bn",), 0.95),
    "digits by AdamW, two batches a step": ("digits", ("train.optimizer=adamw", "train.accumulate=2"), None),
    "digits by LoRA": ("digits", ("update.mode=lora",), None),
}

Found = dict[str, str]


def recorded(names: list[str] | None) -> Found:
    found: Found = {}
    with tempfile.TemporaryDirectory(prefix="edgetrain-replay-") as name:
        scratch = Path(name)
        for label, recipe in _recipes():
            if names and label not in names:
                continue
            for target in TARGETS:
                print(f"{label} for {target}", file=sys.stderr)
                found |= {f"{label} / {target} / {what}": digest for what, digest in _of(recipe, target, scratch)}
        for label, (source, overrides, share) in _RUNS.items():
            if not names or source in names:
                print(f"running {label}", file=sys.stderr)
                found |= _of_run(label, load_recipe(source, (*overrides, f"train.steps={STEPS}")), share, scratch)
    return found


def _recipes() -> Iterator[tuple[str, Recipe]]:
    for name in list_recipes():
        yield name, load_recipe(name)
    for subject in SUBJECTS:
        overrides = [f"train.batch={subject.batch}", "train.optimizer=sgd", "train.momentum=0.9"]
        overrides += [f"model.classes={CLASSES}"] if subject.has_other_head else []
        overrides += [f"model.inputs.{n}={list(shape)}" for n, shape in (subject.input_shapes or {}).items()]
        yield subject.name, recipe_for_model(subject.source(), overrides, needs_data=False)


def _job(recipe: Recipe, target: str, scratch: Path) -> Job:
    return Job(
        recipe=recipe,
        target=load_target(target),
        cache=BuildCache(scratch / "builds"),
        stores=ScheduleStores(folder=scratch / "schedules", seed_folder=SEED_FOLDER),
    )


def _of(recipe: Recipe, target: str, scratch: Path) -> Iterator[tuple[str, str]]:
    """What is recorded of one model for one target, with what it is."""
    job = _job(recipe, target, scratch)
    try:
        stage = compile_job(job)
    except EdgetrainError as error:
        yield "compiling", f"refused: {error.what}"
        return
    compiled = stage.compiled
    yield "graph", _digest((compiled.directory / "graph.json").read_bytes())
    yield "initial values", _digest((compiled.directory / "initial.bin").read_bytes())
    yield "facts", _digest((compiled.directory / "facts.json").read_bytes())
    yield "schedules", _digest((compiled.directory / "schedules.json").read_bytes())
    for archive in sorted({target, "host"}):
        for member, content in read_archive(compiled.kernels(archive)):
            yield f"kernel {member} for {archive}", _digest(content)
    unlimited = stage.asking(target=job.target.with_device(memory_bytes=Bytes(1 << 60)))
    largest = yield from _planned("plan", unlimited)
    if largest is None:
        return
    for share in SHARES:
        yield from _planned(f"plan into {share}", unlimited.asking(budget=_share_of(largest, share)))


def _share_of(plan: Plan, share: float) -> Budget:
    """A budget with that share of the plan's arena, and all that the program needs beside it."""
    return Budget(memory_bytes=Bytes(int(share * plan.peak_bytes) + plan.beside_bytes))


def _planned(what: str, stage: CompiledJob) -> Generator[tuple[str, str], None, Plan | None]:
    try:
        plan = stage.plan().plan
    except PlanInfeasibleError as error:
        yield what, f"infeasible below {error.smallest_bytes}"
        return None
    yield what, _digest(plan_dump.to_json(plan).encode())
    yield f"{what}: driver", _digest(emit_driver(stage.graph, plan).encode())
    return plan


def _of_run(label: str, recipe: Recipe, share: float | None, scratch: Path) -> Found:
    """A short run's trained bits, with a share of the memory that the plan without a budget takes."""
    job = _job(recipe, "host", scratch)
    if share is not None:
        job = dataclasses.replace(job, budget=_share_of(compile_job(job).plan().plan, share))
    report = fit(job, scratch / "runs" / label.replace(" ", "-"))
    return {
        f"run {label} / parameters": report.parameters_sha256,
        f"run {label} / losses": _digest(json.dumps(report.losses).encode()),
        f"run {label} / planned peak": str(report.planned_peak_bytes),
    }


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:24]


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """What is not the same in both, a line each."""
    return [
        f"{name}: {before.get(name, 'missing')} before, {after.get(name, 'missing')} after"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    record = verbs.add_parser("record", help="write the hashes of this tree to a file")
    record.add_argument("out", type=Path)
    record.add_argument("--only", nargs="+", metavar="NAME", help="these recipes and models; without it all")
    compare = verbs.add_parser("compare", help="say what differs between two files")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    arguments = parser.parse_args()
    if arguments.verb == "record":
        found = recorded(arguments.only)
        arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"{len(found)} hashes in {arguments.out}")
        return 0
    before, after = (json.loads(path.read_text(encoding="utf-8")) for path in (arguments.before, arguments.after))
    different = differences(before, after)
    print("\n".join(different[:40]) or f"the same: all {len(before)} hashes")
    if len(different) > 40:
        print(f"and {len(different) - 40} more")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
