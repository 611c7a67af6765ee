"""A `fit` in a process of its own that would never end by itself, met in the middle by other commands."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgetrain.program.process_memory import THREAD_BYTES
from edgetrain.run.files.checkpoint import NEWEST, PREVIOUS, Header, load_checkpoint, read_header
from edgetrain.run.files.run_folder import LIVE
from edgetrain.run.loop.step_log import LOG
from edgetrain.targets.profile import HOST, load_target
from tests.edgetrain.cli.conftest import COMMAND, PLANNABLE

_ENDLESS = ("data.limit=256", "train.epochs=1000000", "train.checkpoint_every=5", "train.schedule=constant")
LONG = ("digits", PLANNABLE, *_ENDLESS)
KEEP_ALL_BYTES = 1_179_392  # of that recipe, as `edgetrain plan` says
# What the process needs beside that: 319,488 bytes on one thread, and a stack for each other one.
BESIDE_BYTES = 319_488 + THREAD_BYTES * (load_target(HOST).device.codegen.cores - 1)
_PATIENCE_S = 120


@contextmanager
def running(
    folder: Path, environment: Mapping[str, str], *words: str, name: str = "digits", before: Sequence[str] = ()
) -> Iterator[subprocess.Popen[str]]:
    """`fit` in `runs/NAME`, from its first step on; ended with the block. `before` is a command that executes it."""
    process = subprocess.Popen(
        [*before, *COMMAND, "fit", *LONG, "--out", f"runs/{name}", *words],
        cwd=folder,
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: (folder / "runs" / name / LIVE).exists(), process)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_until(is_so: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not is_so():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.005)


def budget_events(run: Path) -> list[dict[str, Any]]:
    """How the plan of a run changed so far; a line that is being written does not count yet."""
    lines = (run / LOG).read_text().splitlines(keepends=True)
    logged = (json.loads(line) for line in lines if line.endswith("\n"))
    return [line for line in logged if line.get("event") == "budget"]


def surviving_header(run: Path) -> Header:
    """Of the checkpoint that a killed run left: the previous one, if it was killed while a newer took its place."""
    newest = run / NEWEST
    return read_header(newest if newest.exists() else run / PREVIOUS)


def trained_bytes(run: Path) -> bytes:
    header = read_header(run / NEWEST)
    saved = bytearray(header.payload_bytes)
    load_checkpoint(run / NEWEST, memoryview(saved), program_sha256=header.program_sha256)
    return bytes(saved)
