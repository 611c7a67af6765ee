"""The entry of the schedule cache for a trial, whether the schedule won, lost or failed. No TVM."""

from __future__ import annotations

import math

from edgetrain.compiler.search.trials import Origin
from edgetrain.compiler.versions import tool_versions
from edgetrain_tuner.cache.entry import (
    Check,
    Entry,
    Measurement,
    Provenance,
    Target,
    Versions,
    Workload,
    plain_text,
)
from edgetrain_tuner.cache.schedules import RuleSchedule
from edgetrain_tuner.measure.outcome import MEASURED, Outcome
from edgetrain_tuner.schedule import RULES_VERSION, Schedule

_UNCHECKED = 1e300


def entry_of(
    workload: Workload, target: Target, schedule: Schedule, outcome: Outcome, *, is_kept: bool, origin: Origin
) -> Entry:
    """The entry of one trial. `is_kept` says whether the schedule is used from now on."""
    measurement = Measurement(
        seconds=outcome.seconds,
        default_seconds=outcome.default_seconds,
        n=outcome.n,
        machine=origin.machine,
        when=origin.today,
    )
    return Entry(
        workload=workload,
        target=target,
        schedule=RuleSchedule(rule=schedule.rule, parameters=dict(schedule.parameters)),
        versions=Versions(tvm=tool_versions()["apache-tvm"], rules=RULES_VERSION),
        check=_check(outcome),
        outcome=_word(outcome, is_kept=is_kept),
        measurements=(measurement,) if outcome.status == MEASURED else (),
        provenance=Provenance(model=plain_text(origin.model), who="", tool=plain_text(origin.tool)),
    )


def _word(outcome: Outcome, *, is_kept: bool) -> str:
    if outcome.status != MEASURED:
        return "failed"
    return "faster" if is_kept else "slower"


def _check(outcome: Outcome) -> Check:
    """The error rounded up to a power of ten: two machines that sum in another order have found the same schedule."""
    if not outcome.against:
        return Check(largest_error=_UNCHECKED, against="default")
    error = outcome.largest_error
    rounded = 10.0 ** math.ceil(math.log10(error)) if error > 0 else 0.0
    return Check(largest_error=rounded, against=outcome.against)
