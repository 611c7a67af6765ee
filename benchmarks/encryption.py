"""Measures what encryption at rest costs: steps that page, saving and loading a checkpoint, and sizes of files.

    python -m benchmarks.encryption [--json FILE] [--rounds N] [--pages DIR] [--models digits-cnn-bn,...]

Steps: the default solver's plan for a share of keep-all's memory, made for storage so fast that paging pays, is linked
twice, with pages as they are and encrypted. Both have their page file in one directory (`--pages`; the system's
temporary files) and step in turns. Checkpoints: the same random content, saved with and without a key, in turns, each
with its fsync; then loaded. Every row has medians with their spread and the ratio. The benchmark ends with an error if
parameters differ in a bit.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from benchmarks.measure import (
    Prepared,
    Row,
    Timing,
    add_json_option,
    fill_inputs,
    prepare,
    publish,
    stepper,
    time_in_turns,
)
from benchmarks.paging import paging_plan
from edgetrain.files.secret_key import SecretKey
from edgetrain.graph.options import OptimizerOptions, TrainOptions
from edgetrain.planner.plan import Plan
from edgetrain.program.artifact import Artifact
from edgetrain.program.build import build_program
from edgetrain.run.engines.local import LocalEngine
from edgetrain.run.files.checkpoint import Progress, load_checkpoint, save_checkpoint
from edgetrain.targets.profile import HOST, load_target

ROUNDS = 20
CLASSES = 10
_BUDGETS = (0.8, 0.7)  # of keep-all's memory
_CHECKPOINT_BYTES = (1 << 20, 64 << 20)
_SGD = OptimizerOptions(kind="sgd", momentum=0.9)
_SUBJECTS: Mapping[str, TrainOptions] = {
    "zoo:digits-cnn-bn": TrainOptions(batch=256, optimizer=_SGD),
    "zoo:efficientnet-lite0": TrainOptions(batch=4, optimizer=_SGD, batchnorm="frozen"),
}
_COLUMNS = ("what", "of", "plain", "encrypted", "ratio", "plain spread", "encrypted spread", "paged", "file grows by")
_KEY = SecretKey(bytes(range(32)))
_PROGRESS = Progress(step=1, position=(0, 1), steps_per_epoch=1, seed=0)


def measure_steps(source: str, options: TrainOptions, *, rounds: int, pages: Path) -> list[Row]:
    """A row for each budget whose plan pages."""
    classes = None if source.startswith("zoo:digits") else CLASSES
    prepared = prepare(source.removeprefix("zoo:"), source, options, classes=classes)
    rows: list[Row] = []
    for share in _BUDGETS:
        plan = paging_plan(prepared, share)
        if plan is None or plan.stored:
            continue
        rows.append(_measure_plan(prepared, plan, rounds=rounds, pages=pages))
    return rows


def _measure_plan(prepared: Prepared, plan: Plan, *, rounds: int, pages: Path) -> Row:
    programs = [_program(prepared, plan, encrypts_pages=encrypted) for encrypted in (False, True)]
    with ExitStack() as stack:
        plain, encrypted = (
            stack.enter_context(LocalEngine(program, threads=1, page_directory=pages)) for program in programs
        )
        for engine in (plain, encrypted):
            fill_inputs(engine, prepared.compiled, classes=CLASSES)
        timings = time_in_turns({"plain": stepper(plain), "encrypted": stepper(encrypted)}, rounds=rounds)
        if bytes(plain.saved) != bytes(encrypted.saved):
            raise SystemExit(f"{prepared.name}: encrypted pages changed the parameters")
    row = _row(f"step of {prepared.name}", timings)
    return {**row, "paged": programs[1].manifest.page_file_bytes}


def _program(prepared: Prepared, plan: Plan, *, encrypts_pages: bool) -> Artifact:
    device = load_target(HOST).device
    return build_program(prepared.compiled, plan, device, cache=prepared.cache, encrypts_pages=encrypts_pages)


def measure_checkpoint(nbytes: int, *, rounds: int, folder: Path) -> list[Row]:
    """Saving and loading one of that size."""
    content = memoryview(np.random.default_rng(0).bytes(nbytes))
    filled = memoryview(bytearray(nbytes))
    paths = {"plain": folder / "plain", "encrypted": folder / "encrypted"}

    def save(name: str) -> Callable[[], object]:
        key = _KEY if name == "encrypted" else None
        return lambda: save_checkpoint(paths[name], content, _PROGRESS, program_sha256="", key=key)

    def load(name: str) -> Callable[[], object]:
        key = _KEY if name == "encrypted" else None
        return lambda: load_checkpoint(paths[name], filled, program_sha256="", key=key)

    saved = time_in_turns({name: save(name) for name in paths}, rounds=rounds)
    loaded = time_in_turns({name: load(name) for name in paths}, rounds=rounds)
    if filled != content:
        raise SystemExit("a checkpoint came back with other bytes")
    grows_by = paths["encrypted"].stat().st_size - paths["plain"].stat().st_size
    size = f"{nbytes >> 20} MiB"
    return [
        {**_row(f"save {size}", saved), "file grows by": grows_by},
        {**_row(f"load {size}", loaded), "file grows by": grows_by},
    ]


def _row(what: str, timings: Mapping[str, Timing]) -> Row:
    plain, encrypted = timings["plain"], timings["encrypted"]
    return {
        "what": what,
        "of": plain.n,
        "plain": plain.seconds,
        "encrypted": encrypted.seconds,
        "ratio": encrypted.seconds / plain.seconds,
        "plain spread": plain.spread,
        "encrypted spread": encrypted.spread,
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--pages", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--models", default=",".join(_SUBJECTS), help="names, with commas between them")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    chosen = options.models.split(",")
    for source, train_options in _SUBJECTS.items():
        if source not in chosen and source.removeprefix("zoo:") not in chosen:
            continue
        rows += measure_steps(source, train_options, rounds=options.rounds, pages=options.pages)
    with tempfile.TemporaryDirectory(dir=options.pages) as folder:
        for nbytes in _CHECKPOINT_BYTES:
            rows += measure_checkpoint(nbytes, rounds=max(4, options.rounds // 2), folder=Path(folder))
    publish("encryption", rows, _COLUMNS, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
