"""Instances that others published, with the best answers known; `benchmarks/planner.py` runs more of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgetrain.planner.references.solve_instance import Case, read_instance, solve_instance

FILES = sorted((Path(__file__).parent / "cases").glob("*.json"))
CASES = [
    pytest.param(case, id=f"{path.stem}-{number}")
    for path in FILES
    for number, case in enumerate(read_instance(path.read_text(encoding="utf-8")))
]
TOLERANCE = 1e-3  # of the published optimum


def test_there_are_cases() -> None:
    assert len(CASES) == 12


@pytest.mark.parametrize("case", CASES)
def test_the_best_known_answer_is_reached(case: Case) -> None:
    answer = solve_instance(case, time_limit_s=60.0)
    assert answer["feasible"] is not case.is_infeasible
    if case.best is not None:
        assert isinstance(answer["objective"], float)
        assert answer["objective"] <= case.best * (1 + TOLERANCE)
        assert isinstance(answer["peak_bytes"], int)
        assert answer["peak_bytes"] <= case.memory_bytes
