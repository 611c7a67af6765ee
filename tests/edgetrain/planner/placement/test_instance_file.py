from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from edgetrain.errors import DataError
from edgetrain.planner.placement.instance_file import FORMAT, read_placements, solve_placement


def op_on(seconds: list[int | None], joules: list[int | None], *, reads: Sequence[int] = ()) -> dict[str, Any]:
    return {"name": "a", "reads": list(reads), "output_bytes": 4, "seconds": seconds, "joules": joules}


def document() -> dict[str, Any]:
    """Two ops in a row; the second runs on device 0 alone."""
    return {
        "format": FORMAT,
        "name": "two",
        "ops": [
            {"name": "a", "reads": [], "output_bytes": 4, "seconds": [5, 1], "joules": [1, 2]},
            {"name": "b", "reads": [0], "output_bytes": 4, "seconds": [5, None], "joules": [1, None]},
        ],
        "copy": {"seconds_per_byte": 0.25, "joules_per_byte": 1.0},
        "cases": [
            {"memory_bytes": [8, 4], "minimize": "seconds"},
            {"memory_bytes": [8, 4], "minimize": "joules"},
            {"memory_bytes": [7, 4], "minimize": "seconds"},
        ],
    }


def test_every_case_is_answered_in_its_own_unit() -> None:
    quick, frugal, small = map(solve_placement, read_placements(json.dumps(document())))
    assert (quick["objective"], quick["copies"], quick["runs_by_device"]) == (1 + 4 * 0.25 + 5, 1, [1, 1])
    assert quick["peak_bytes"] == [8, 4]
    assert (frugal["objective"], frugal["copies"], frugal["runs_by_device"]) == (2.0, 0, [2, 0])
    assert small["feasible"] is False
    assert small["objective"] is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "other"}, "has format"),
        ({"ops": [{"name": "a", "reads": [0], "output_bytes": 4, "seconds": [1, 1], "joules": [1, 1]}]}, "before it"),
        (
            {"ops": [{"name": "a", "reads": [], "output_bytes": 4, "seconds": [None, 1], "joules": [1, None]}]},
            "neither",
        ),
        ({"cases": [{"memory_bytes": [1], "minimize": "seconds"}]}, "not a placement instance"),
        ({"cases": [{"memory_bytes": [1, 1], "minimize": "comfort"}]}, "not a placement instance"),
    ],
)
def test_what_is_no_placement_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        read_placements(json.dumps(document() | change))
