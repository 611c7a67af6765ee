"""Starts the compiler's process, sends it a job, and receives its progress and errors."""

from __future__ import annotations

import errno
import json
import logging
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from edgetrain.errors import DeviceError, InternalError, error_from_json
from edgetrain.files.scratch import scratch_folder, sweep_scratch_folders
from edgetrain.free_memory import address_space_bytes, read_memory
from edgetrain.progress import ReportProgress
from edgetrain.units import show_bytes

log = logging.getLogger(__name__)

# What the process takes, read off /proc for digits, EfficientNet-Lite0 and MiniLM-L6: 273, 373 and 821 MB, and 250 to
# 300 MB more of addresses. TVM and LLVM take the first part, copies of the weights the second.
_BASE_BYTES = 270 << 20
_PER_MODEL_BYTE = 6
_ADDRESSES_BYTES = 300 << 20
_LEAST_SHARE = 0.8  # of what a model is expected to take: with less it is not worth beginning
# How memory that ran out reads in the last words of Python, the C++ library, LLVM and the loader.
_OUT_OF_MEMORY = (
    "MemoryError",
    "bad_alloc",
    "out of memory",
    os.strerror(errno.ENOMEM),
    "failed to map segment",
    "Memory allocation still failed",
)


def run_compiler(job: Mapping[str, Any], progress: ReportProgress | None) -> None:
    """Runs the compiler's process to its end; its messages are JSON lines on standard output.

    Raises what the process says, and `DeviceError` where the machine has not enough memory or disk for it.
    """
    sweep_scratch_folders()
    needed_bytes = _BASE_BYTES + _PER_MODEL_BYTE * _model_bytes(job)
    _require_memory(needed_bytes)
    command = [sys.executable, "-P", "-m", "edgetrain.compiler.process"]
    # Whoever is ended in the middle of something leaves files behind; all of them are in a folder that we remove.
    with scratch_folder("compile") as scratch, _last_words() as errors:
        process = _started(command, errors, str(scratch))
        try:
            _talk(process, job, progress)
            code = process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        errors.seek(0)
        tail = errors.read()[-4000:].strip()
    if code != 0:
        if code == -signal.SIGKILL or any(words in tail for words in _OUT_OF_MEMORY):
            taken = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
            raise out_of_memory(f"it had taken {show_bytes(taken)} and needs about {show_bytes(needed_bytes)}")
        is_disk_full = os.strerror(errno.ENOSPC) in tail
        if is_disk_full:  # LLVM ends the whole process where a file cannot be written
            raise refused(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        raise InternalError(
            f"the compiler process ended with {_describe_exit(code)}",
            why=tail.splitlines()[-1] if tail else "it said nothing",
            fix="run again with -v and report the model and this message",
        )


def _last_words() -> IO[str]:
    """A file in memory: on a disk that is full nobody could say so."""
    return os.fdopen(os.memfd_create("edgetrain-compiler"), "w+", errors="replace")


def _started(command: Sequence[str], errors: IO[str], scratch: str) -> subprocess.Popen[str]:
    """Raises `DeviceError` where the system has no room for one more process."""
    try:
        # In a group of its own: Ctrl-C must reach us first, so that we end it and tell the user what happened.
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            env={**os.environ, "TMPDIR": scratch},
        )
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise out_of_memory("the system had none left to start the compiler's process") from error
        raise DeviceError(
            "the compiler's process does not start",
            why=error.strerror or str(error),
            fix="close other programs, or raise the limit on processes (`ulimit -u`)",
        ) from error


def _model_bytes(job: Mapping[str, Any]) -> int:
    """The size of the model's file. Of a zoo model it is not known before it is built."""
    request = job.get("request", {})
    source = request.get("compile", request).get("model", {}).get("source", "")
    try:
        return Path(source).stat().st_size
    except OSError:
        return 0


def _require_memory(needed_bytes: int) -> None:
    """Raises `DeviceError` where a limit leaves the compiler less than it needs."""
    least_bytes = int(_LEAST_SHARE * needed_bytes)
    addresses = address_space_bytes()
    if addresses is not None and addresses < least_bytes + _ADDRESSES_BYTES:
        raise DeviceError(
            f"compiling this model needs about {show_bytes(needed_bytes + _ADDRESSES_BYTES)} of addresses",
            why=f"the limit of this shell is {show_bytes(addresses)}",
            fix="raise it: `ulimit -v unlimited`",
        )
    reading = read_memory()
    if reading is not None and reading.total_bytes < least_bytes:
        raise out_of_memory(
            f"it needs about {show_bytes(needed_bytes)}, and all there is are {show_bytes(reading.total_bytes)}"
        )


def out_of_memory(why: str) -> DeviceError:
    """Of the machine, or of what a limit leaves."""
    return DeviceError(
        "memory ran out while the model was compiled",
        why=why,
        fix="close other programs, raise the limit (`ulimit -v unlimited`), lower train.batch, or compile on another "
        "machine with the same processor",
    )


def refused(error: OSError) -> DeviceError:
    """A full disk is the machine's failure, not the compiler's."""
    return DeviceError(
        f"the compiler could not use {f'`{error.filename}`' if error.filename else 'a file'}",
        why=error.strerror or str(error),
        fix="free space for the build cache and for temporary files, or move them with XDG_CACHE_HOME and TMPDIR",
    )


def _talk(process: subprocess.Popen[str], job: Mapping[str, Any], progress: ReportProgress | None) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        json.dump(job, process.stdin)
        process.stdin.close()
    except BrokenPipeError:
        return  # it died at once: its exit code and last words say why
    for line in process.stdout:
        try:
            message = json.loads(line)
        except json.JSONDecodeError:
            log.debug("compiler: %s", line.rstrip())  # LLVM and TVM print warnings of their own
            continue
        if "error" in message:
            raise error_from_json(message)
        if progress is not None:
            progress(str(message["stage"]), int(message["done"]), int(message["total"]))


def _describe_exit(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"code {code}"
