"""A peer as a process: `python -m benchmarks.peers.serve JOB` answers each line of standard input with a line of JSON.

The first line says which version is ready, or why it cannot train this model. `step N` takes N steps and answers with
the seconds of one step and the first loss. `grow` answers how much the process grows over three steps, weights
included. It first takes a step and returns that step's memory to the system, so that loading and compiling do not
count.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from benchmarks.peers.protocol import GROW, STEP, CannotError, Job, Step, take_turn

Build = Callable[[Job], Step]

_MODULES: Mapping[str, str] = {"torch": "in_torch", "torch-compile": "in_torch", "jax": "in_jax", "ort": "in_ort"}
# Read by the libraries when they start. XLA takes the size of its thread pool from NPROC.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")
_STEPS = 3


def main() -> int:
    job = Job.from_json(sys.argv[1])
    for variable in _THREAD_VARIABLES:
        os.environ[variable] = str(job.threads)
    try:
        peer = importlib.import_module(f"benchmarks.peers.{_MODULES[job.peer]}")
        build: Build = peer.build
        step: Step | None = build(job)
    except ImportError as error:
        return _answer({"cannot": f"not installed: {error.name}"})
    except CannotError as error:
        return _answer({"cannot": str(error)})
    _answer({"ready": peer.VERSION})
    for line in sys.stdin:
        command, *counts = line.split()
        if command == STEP and step is not None:
            _answer(asdict(take_turn(step, int(counts[0]))))
        elif command == GROW and step is not None:
            step()
            step = None
            _answer({"bytes": _growth(build, job)})
    return 0


def _growth(build: Build, job: Job) -> int | None:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = _status_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # proc(5): the peak starts anew
    step = build(job)
    for _ in range(_STEPS):
        step()
    return _status_bytes("VmHWM") - before


def _status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise RuntimeError(f"the system does not say {field}")


def _answer(content: Mapping[str, object]) -> int:
    print(json.dumps(content), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
