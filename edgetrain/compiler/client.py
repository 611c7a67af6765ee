"""Starts the compiler's process, sends it a job, and receives its progress and errors."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from edgetrain.errors import DeviceError, InternalError, error_from_json
from edgetrain.progress import ReportProgress

log = logging.getLogger(__name__)


def run_compiler(job: Mapping[str, Any], progress: ReportProgress | None) -> None:
    """Runs the compiler's process to its end; its messages are JSON lines on standard output."""
    command = [sys.executable, "-P", "-m", "edgetrain.compiler.process"]
    with tempfile.TemporaryFile("w+") as errors:
        # In a group of its own: Ctrl-C must reach us first, so that we end it and tell the user what happened.
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
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
        is_disk_full = os.strerror(errno.ENOSPC) in tail
        if is_disk_full:  # LLVM ends the whole process where a file cannot be written
            raise refused(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        raise InternalError(
            f"the compiler process ended with {_describe_exit(code)}",
            why=tail.splitlines()[-1] if tail else "it said nothing",
            fix="run again with -v and report the model and this message",
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
