"""Compares planned with measured seconds of a step, before and after `edgetrain targets calibrate`.

    python -m benchmarks.calibration [--rounds 5] [--out calibration.json]

Each round calibrates again. The ratio planned / measured of each program is printed as a median with its range. The
rates are fitted to three of the programs. The fourth shows how well they predict a program that was not used.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import machine
from edgetrain.locate import data_path, user_cache_dir
from edgetrain.pipeline.job import Job
from edgetrain.recipes import load_recipe
from edgetrain.targets.profile import HOST, load_target
from edgetrain.tuning.calibrate import ProgramTime, calibrate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    # The profile as shipped, not one that an earlier calibration left behind.
    shipped = load_target(HOST)
    assert shipped.rates_basis == "assumed", f"remove your own `host` first: {data_path('targets')} is to be compared"
    job = Job(recipe=load_recipe("digits"), target=shipped)
    today = datetime.date.today().isoformat()
    rounds = [
        calibrate(job, name=HOST, today=today, folder=user_cache_dir(), inform=lambda _: None)
        for _ in range(arguments.rounds)
    ]
    rows = [_row([report.programs[i] for report in rounds]) for i in range(len(rounds[0].programs))]
    for row in rows:
        print(
            f"{row['program']:<12} measured {1e3 * row['measured_s']:6.2f} ms   planned/measured "
            f"before {_shown(row['before'])}   after {_shown(row['after'])}"
            + ("" if row["is_fitted"] else "   (not fitted)")
        )
    if arguments.out is not None:
        found = {"machine": machine(), "n": arguments.rounds, "programs": rows}
        arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _row(times: Sequence[ProgramTime]) -> dict[str, Any]:
    return {
        "program": times[0].name,
        "is_fitted": times[0].is_fitted,
        "measured_s": statistics.median(time.measured_s for time in times),
        "before": _spread([time.planned_before_s / time.measured_s for time in times]),
        "after": _spread([time.planned_s / time.measured_s for time in times]),
    }


def _spread(ratios: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}


def _shown(spread: dict[str, float]) -> str:
    return f"{spread['median']:.2f} ({spread['least']:.2f} to {spread['most']:.2f})"


if __name__ == "__main__":
    main()
