"""The questions that `check` asks, and how it reports the answers."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edgetrain.run.check import CheckReport, Finding, Probe, fill_synthetic, spread, take_steps
from edgetrain.run.engine import LABELS
from tests.edgetrain.run.softmax_regression import CLASSES, GRAPH, TRAINED, SoftmaxRegression


def probe(seed: int = 0) -> Probe:
    return Probe(
        program=cast(Any, SimpleNamespace(graph=GRAPH)),
        loss="cross-entropy",
        trained=TRAINED,
        threads=1,
        page_directory=Path(),
        seed=seed,
    )


def test_steps_are_the_same_for_the_same_seed() -> None:
    losses = [take_steps(SoftmaxRegression(), probe(seed)) for seed in (1, 1, 2)]
    assert losses[0] == losses[1] != losses[2]
    assert losses[0][-1] < losses[0][0]


def test_labels_are_classes_of_the_model() -> None:
    engine = SoftmaxRegression()
    fill_synthetic(engine, GRAPH, loss="cross-entropy", seed=0)
    assert set(engine.tensor(LABELS).tolist()) <= set(range(CLASSES))
    assert engine.tensor("x").std() > 0.5


@pytest.mark.parametrize("count", [1, 2, 3, 32, 100, 161])
def test_the_tensors_asked_are_spread_over_the_model(count: int) -> None:
    names = [f"t{i}" for i in range(count)]
    chosen = spread(names, 32)
    assert len(chosen) == len(set(chosen)) == min(count, 32)
    assert (chosen[0], chosen[-1]) == (names[0], names[-1])
    assert list(chosen) == [name for name in names if name in chosen]


def test_one_failed_question_fails_the_check_and_shows() -> None:
    good = Finding(name="steps", is_ok=True, text="losses 1, 0.5")
    bad = Finding(name="gradients", is_ok=False, text="wrong: `w`")
    report = CheckReport(model="tiny", findings=(good, bad))
    assert not report.is_ok
    assert report.to_text() == (
        "steps      ok      losses 1, 0.5\ngradients  FAILED  wrong: `w`\n\ntiny DOES NOT train right here\n"
    )
    assert json.loads(report.to_json())["is_ok"] is False
    assert CheckReport(model="tiny", findings=(good,)).to_text().endswith("tiny trains here\n")
