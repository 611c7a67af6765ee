"""Asks the compiler for a training graph and its kernels. The compiler is another process: TVM is not loaded here.

The answer is a folder in the build cache, keyed by every value it depends on, the compiler's own source included.
"""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from edgetrain.compiler.client import run_compiler
from edgetrain.compiler.compiled import FACTS, Compiled
from edgetrain.compiler.request import CompileRequest, ModelSource
from edgetrain.compiler.schedules import (
    SCHEDULES,
    KnownSchedules,
    ScheduleChoice,
    ScheduleStores,
    choices_of,
    read_records,
)
from edgetrain.compiler.search.trials import TRIALS, TrialReport, TrialTerms, read_trials
from edgetrain.compiler.tuner_view import schedule_target
from edgetrain.compiler.versions import tool_identity
from edgetrain.files.build_cache import OBJECTS, BuildCache, cache_key
from edgetrain.files.scratch import scratch_folder
from edgetrain.graph.options import TrainOptions
from edgetrain.locate import builds_limit_bytes
from edgetrain.progress import ReportProgress
from edgetrain.units import show_bytes

log = logging.getLogger(__name__)


def compile_graph(
    request: CompileRequest,
    *,
    cache: BuildCache,
    stores: ScheduleStores | None = None,
    terms: TrialTerms | None = None,
    progress: ReportProgress | None = None,
) -> Compiled:
    """The compiled graph, from the cache where it is there; with the best schedules that `stores` have.

    With `terms` the target is this machine: schedules that nobody has measured on it are tried first, as far as the
    terms go, and those that did not win are not used. Without, the stores' word is taken.
    Raises whatever the compiler raised (`ModelError`, `UnsupportedError`, `UsageError`), as if it had run here.
    """
    if request.schedules is None:
        kernels = cache.get(_key(request, "kernels"))
        if kernels is None:
            return _compile_and_choose(request, cache, stores, terms, progress)
        workloads = {symbol: record.workload for symbol, record in read_records(kernels / SCHEDULES).items()}
        known = KnownSchedules()
        target = schedule_target(request.codegen) if request.gpu is None else None
        if stores is not None and target is not None:
            machine = terms.origin.machine if terms is not None else None
            known = stores.choose(workloads, target, machine=machine)
        if known.untried and terms is not None and terms.are_allowed:
            return _compile_and_choose(request, cache, stores, terms, progress)
        request = replace(request, schedules={s: known.choices.get(s, ScheduleChoice()) for s in workloads})
    key = _key(request)

    def build(out: Path) -> None:
        _compile(request, cache, out, progress)

    return Compiled(directory=cache.put(key, build), key=key, choices=request.schedules)


def _compile_and_choose(
    request: CompileRequest,
    cache: BuildCache,
    stores: ScheduleStores | None,
    terms: TrialTerms | None,
    progress: ReportProgress | None,
) -> Compiled:
    """For a model whose kernels nobody knows yet, or that has schedules to try: the compiler does it on the way."""
    with cache.workspace() as out:
        _compile(request, cache, out, progress, stores, terms)
        records = read_records(out / SCHEDULES)
        trials = read_trials(out / TRIALS)
        (out / TRIALS).unlink(missing_ok=True)  # of this time, not of the program
        _tell(trials)
        cache.put(_key(request, "kernels"), lambda place: _copy(out / SCHEDULES, place))
        choices = choices_of(records)
        key = _key(replace(request, schedules=choices))
        directory = cache.put(key, lambda place: _move_all(out, place))
        return Compiled(directory=directory, key=key, choices=choices, trials=trials)


def _tell(trials: TrialReport) -> None:
    """Warns of what is wrong or does not run; that others are faster elsewhere is no fault."""
    for one in trials.tried:
        if one.is_broken:
            log.warning(
                "the schedule %s (%s) for %s is not used: %s, %s",
                one.entry[:12],
                one.level,
                one.kernel,
                one.outcome.status,
                one.outcome.message,
            )
    for kernel, why in trials.unmeasured.items():
        log.warning("%s keeps its schedule: it cannot be measured: %s", kernel, why)


def _tidy(cache: BuildCache) -> None:
    """Before something is added: what killed processes left goes, and what is beyond the cache's size."""
    cache.sweep()
    removed = cache.trim(builds_limit_bytes())
    if removed:
        log.info("the build cache was trimmed by %s", show_bytes(removed))


def _compile(
    request: CompileRequest,
    cache: BuildCache,
    out: Path,
    progress: ReportProgress | None,
    stores: ScheduleStores | None = None,
    terms: TrialTerms | None = None,
) -> None:
    _tidy(cache)
    choosing = {
        "stores": stores.to_json() if stores is not None else None,
        "terms": terms.to_json() if terms is not None else None,
    }
    job = {"job": "compile", "request": request.to_json(), "out": str(out), "objects": str(cache.root / OBJECTS)}
    run_compiler({**job, **choosing}, progress)


def _key(request: CompileRequest, *parts: str) -> str:
    """Of the schedules only what they are: where they come from changes no program."""
    schedules = request.schedules
    if schedules is not None:
        schedules = {s: ScheduleChoice(schedule=c.schedule) for s, c in schedules.items() if c.schedule is not None}
    described = {**replace(request, schedules=schedules).to_json(), "model": request.model.identity()}
    return cache_key("edgetrain.compile/3", described, tool_identity(), *parts)


def _copy(source: Path, folder: Path) -> None:
    shutil.copyfile(source, folder / source.name)


def _move_all(source: Path, folder: Path) -> None:
    for path in source.iterdir():
        path.rename(folder / path.name)


def inspect_model(model: ModelSource, options: TrainOptions, progress: ReportProgress | None = None) -> dict[str, Any]:
    """What the compiler would do with a model: its ops, parameters, gradients and rewrites. See `inspection.py`."""
    with scratch_folder("inspect") as out:
        request = {"model": asdict(model), "options": options.to_json()}
        run_compiler({"job": "inspect", "request": request, "out": str(out)}, progress)
        found: dict[str, Any] = json.loads((Path(out) / FACTS).read_text(encoding="utf-8"))
        return found
