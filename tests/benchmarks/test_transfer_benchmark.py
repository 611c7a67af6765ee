"""The benchmark's own arithmetic: who gives, who receives, and shares of the best."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="pip install torch==2.13.0")

from benchmarks.transfer import families, means


def test_a_family_is_one_kernel_in_several_shapes() -> None:
    found = {family.name: family for family in families([""])}
    assert len(found) == 4 * 3 + 3
    for family in found.values():
        shapes = [family.receiver.shape, *(donor.shape for donor in family.donors)]
        assert len(shapes) == len(set(shapes)) >= 3
        assert {donor.family for donor in family.donors} == {family.receiver.family}
    assert [family.name for family in families(["depthwise"])] == [
        f"depthwise {part}" for part in ("forward", "data gradient", "weight gradient")
    ]


def test_means_are_geometric_and_leave_out_what_was_not_measured() -> None:
    rows = [
        {"rule of best": 0.5, "rule search s": 0.0, "long of best": 1.0, "long search s": 30.0},
        {"rule of best": 2.0, "rule search s": 0.0, "long of best": 1.0, "long search s": 50.0},
    ]
    rule, long = means(rows)
    assert (rule["way"], rule["kernels"], rule["mean of best"], rule["least"]) == ("rule", 2, pytest.approx(1.0), 0.5)
    assert (long["way"], long["search s a kernel"]) == ("long", 40.0)
