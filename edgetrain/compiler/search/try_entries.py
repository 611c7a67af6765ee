"""Tries, in the compiler's process, every entry that says it is faster for a kernel of a model. No TVM here."""

from __future__ import annotations

from pathlib import Path

from edgetrain.compiler.client import run_compiler
from edgetrain.compiler.request import CompileRequest
from edgetrain.compiler.schedules import ScheduleStores
from edgetrain.compiler.search.trials import TRIALS, TrialReport, TrialTerms, read_trials
from edgetrain.files.scratch import scratch_folder
from edgetrain.progress import ReportProgress


def try_entries(
    request: CompileRequest, stores: ScheduleStores, terms: TrialTerms, progress: ReportProgress | None = None
) -> TrialReport:
    """Tries them all, and stores what was measured. Raises as `compile_graph` does."""
    with scratch_folder("try") as out:
        job = {"job": "try", "request": request.to_json(), "out": str(out)}
        run_compiler({**job, "stores": stores.to_json(), "terms": terms.to_json()}, progress)
        return read_trials(Path(out) / TRIALS)
