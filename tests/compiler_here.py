"""The compiler in the test's own process: importing TVM takes half of the time that a small model needs."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgetrain.compiler import process as compiler_process
from edgetrain.progress import ReportProgress


def compile_here(job: Mapping[str, Any], progress: ReportProgress | None) -> None:
    """As `run_compiler`, but that progress is told at the end. Raises what the compiler's process would send."""
    sent = json.loads(json.dumps(job))
    channel = io.StringIO()
    compiler_process._JOBS[sent["job"]](sent, Path(sent["out"]), channel)
    for message in map(json.loads, channel.getvalue().splitlines()):
        if progress is not None:
            progress(str(message["stage"]), int(message["done"]), int(message["total"]))
