"""Verifies schedules of the cache on this machine, with a model's kernels: results and speed."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgetrain.compiler.search.trials import FAILS, HOLDS, SLOWER, TriedSchedule
from edgetrain.compiler.search.try_entries import try_entries
from edgetrain.compiler.tuner_view import schedule_target
from edgetrain.errors import DeviceError
from edgetrain.pipeline.job import Job, compile_request, trial_terms
from edgetrain_tuner.measure.outcome import WRONG
from edgetrain_tuner.transfer import FASTER

VERDICTS = (HOLDS, SLOWER, WRONG, FAILS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was tried, and what could not be: an entry does not hold its kernel, and this model has not all of them."""

    model: str
    tried: tuple[TriedSchedule, ...]
    uncovered: int  # say that they are faster, for other kernels, targets or rules
    unpromising: int  # say that they are no faster: nothing to hold them to
    unmeasured: Mapping[str, str] = field(default_factory=dict)  # kernels, with the reason

    @property
    def counts(self) -> Mapping[str, int]:
        found = collections.Counter(one.verdict for one in self.tried)
        return {verdict: found[verdict] for verdict in VERDICTS}

    @property
    def is_good(self) -> bool:
        """Nothing is wrong and nothing fails. To be no faster on another machine is no fault."""
        return not self.unmeasured and not any(one.is_broken for one in self.tried)

    def to_json(self) -> dict[str, Any]:
        tried = [
            {
                "id": one.entry,
                "level": one.level,
                "kernel": one.kernel,
                "verdict": one.verdict,
                "claimed": one.claimed,
                "speedup": one.outcome.speedup,
                "message": one.outcome.message,
            }
            for one in self.tried
        ]
        counted = {"uncovered": self.uncovered, "unpromising": self.unpromising}
        return {"model": self.model, **self.counts, **counted, "unmeasured": dict(self.unmeasured), "tried": tried}


def verify_schedules(job: Job) -> Verification:
    """Tries every entry that says it is faster for a kernel of the job's model, and stores what was learned.

    Raises `DeviceError` for a target that is not this machine, and as `compile_graph` does.
    """
    terms = trial_terms(job, may_try=True)
    request = compile_request(job, with_kernels=True)
    if terms is None or schedule_target(request.codegen) is None or job.stores is None:
        raise DeviceError(
            f"schedules for {job.target.name} cannot be tried here",
            why="a schedule has to be tried on the device it is for",
            fix="run this on the device itself",
        )
    everything = dataclasses.replace(terms, trials=dataclasses.replace(terms.trials, seconds=None))
    with job.stores.opened() as levels:
        entries = {one.entry.id: one.entry for one in levels}
    report = try_entries(request, job.stores, everything, job.progress)
    rest = [entry for id_, entry in entries.items() if id_ not in {one.entry for one in report.tried}]
    promising = sum(entry.outcome == FASTER for entry in rest)
    return Verification(
        model=job.recipe.name,
        tried=report.tried,
        uncovered=promising,
        unpromising=len(rest) - promising,
        unmeasured=report.unmeasured,
    )
