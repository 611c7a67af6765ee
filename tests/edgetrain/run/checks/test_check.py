"""The questions that `check` asks, and how it reports the answers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from edgetrain.graph.ir import LABELS, LEARNING_RATE, LOSS, Role, Tensor, TrainGraph
from edgetrain.run.checks.check import (
    CheckReport,
    Finding,
    Probe,
    ask_gradients,
    gradients_answer,
    spread,
    take_steps,
)
from edgetrain.run.checks.gradient_check import GradientError, Verdict
from edgetrain.run.engines.engine import Array
from edgetrain.run.engines.synthetic import fill_synthetic
from tests.edgetrain.run import clipped_network as clipped
from tests.edgetrain.run.clipped_network import ON_A_KINK, clipped_network
from tests.edgetrain.run.numpy_engine import NumpyEngine
from tests.edgetrain.run.softmax_regression import GRAPH, TRAINED, softmax_regression


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
    losses = [take_steps(softmax_regression(), probe(seed)) for seed in (1, 1, 2)]
    assert losses[0] == losses[1] != losses[2]
    assert losses[0][-1] < losses[0][0]


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
        "steps      ok      losses 1, 0.5\ngradients  FAILED  wrong: `w`\n\ntiny DOES NOT train correctly here\n"
    )
    assert json.loads(report.to_json())["is_ok"] is False
    assert CheckReport(model="tiny", findings=(good,)).to_text().endswith("tiny trains here\n")


def test_an_open_question_is_neither_ok_nor_failed() -> None:
    good = Finding(name="steps", is_ok=True, text="losses 1, 0.5")
    unanswered = Finding(name="gradients", is_ok=False, is_open=True, text="too few are certain")
    report = CheckReport(model="tiny", findings=(good, unanswered))
    assert not report.is_ok
    assert report.to_text() == (
        "steps      ok      losses 1, 0.5\ngradients  OPEN    too few are certain\n\n"
        "tiny runs here; whether it trains correctly IS NOT SHOWN\n"
    )
    bad = Finding(name="plan", is_ok=False, text="other bits")
    assert CheckReport(model="tiny", findings=(unanswered, bad)).verdict == "DOES NOT train correctly here"


def error(name: str, verdict: Verdict) -> GradientError:
    relative = {Verdict.RIGHT: 0.01, Verdict.UNSEEN: 0.5, Verdict.UNCERTAIN: 0.04, Verdict.WRONG: 0.3}[verdict]
    spread = 0.12 if verdict is Verdict.UNCERTAIN else 0.0
    return GradientError(tensor=name, verdict=verdict, excess=relative / 0.02, relative=relative, spread=spread)


def answer(**counts: int) -> Finding:
    named = [(verdict, i) for verdict, count in counts.items() for i in range(count)]
    return gradients_answer([error(f"{v}{i}", Verdict[v.upper()]) for v, i in named], trained=40)


def test_a_few_uncertain_tensors_are_named_with_how_far_their_differences_are_apart() -> None:
    found = answer(right=9, uncertain=3)
    assert found.is_ok
    assert found.text == (
        "12 of 40 tensors against finite differences, worst `right0` off by 1.00%; uncertain: `uncertain0`, "
        "`uncertain1`, `uncertain2`, whose differences contradict each other (kinks), by up to 12.0% of the gradient"
    )


@pytest.mark.parametrize("counts", [{"right": 8, "uncertain": 3}, {"uncertain": 1}, {"unseen": 5}])
def test_too_little_that_is_certain_leaves_the_question_open(counts: dict[str, int]) -> None:
    found = answer(**counts)
    assert (found.is_ok, found.is_open) == (False, True)
    assert found.text.endswith("too few are certain to say that the gradients are right")


def test_what_cannot_be_seen_is_counted_and_excuses_nothing() -> None:
    assert answer(right=1, unseen=5).is_ok
    assert answer(right=1, unseen=5).text.endswith("; 5 too small for float32 to show")
    assert not answer(right=2, uncertain=1, unseen=5).is_ok


def test_one_wrong_tensor_fails_whatever_the_others_are() -> None:
    found = answer(right=9, uncertain=9, unseen=1, wrong=1)
    assert (found.is_ok, found.is_open) == (False, False)
    assert "worst `wrong0` off by 30.00%; wrong: `wrong0`; uncertain: " in found.text


def clipped_probe(seed: int) -> Probe:
    return dataclasses.replace(
        probe(seed),
        program=cast(Any, SimpleNamespace(graph=clipped.GRAPH)),
        loss="mse",
        trained=(*clipped.TRAINED, ON_A_KINK),
    )


@pytest.mark.parametrize("seed", range(3))
def test_kinks_leave_one_tensor_of_five_uncertain_and_the_check_passes(seed: int) -> None:
    found = ask_gradients(clipped_network(), clipped_probe(seed))
    assert found.is_ok
    assert f"uncertain: `{ON_A_KINK}`" in found.text


@pytest.mark.parametrize("seed", range(3))
def test_a_wrong_gradient_among_kinks_fails_the_check(seed: int) -> None:
    found = ask_gradients(clipped_network({"w1": lambda g: 0.7 * g}), clipped_probe(seed))
    assert (found.is_ok, found.is_open) == (False, False)
    assert "wrong: `w1`;" in found.text


def test_what_is_uncertain_on_one_batch_is_asked_again_on_another() -> None:
    kinked = probe_seeds_by_sign()
    found = ask_gradients(clipped_network(kink_where_first_input_is_positive=True), clipped_probe(kinked))
    assert found.is_ok
    assert "uncertain" not in found.text


def sure_sigmoid(arrays: Mapping[str, Array]) -> tuple[float, Mapping[str, Array]]:
    """One weight for each output: 1 / (1 + exp(−w)), with a mean squared error."""
    output = 1 / (1 + np.exp(-arrays["w"]))
    arrays["evaluate.y"][...] = output
    difference = arrays["evaluate.y"] - arrays[LABELS]
    slope = output * (1 - output)
    return float(np.mean(difference**2)), {"w": (2 * difference * slope).sum(axis=0) / difference.size}


@pytest.mark.parametrize("fault", [1.0, 0.7])
def test_what_a_sure_output_hides_is_asked_again_with_smaller_parameters(fault: float) -> None:
    """At a weight of 17 a sigmoid passes 4e-8 of a change back, at a quarter of it 1 %."""
    shapes = {"evaluate.y": Role.OUTPUT, LABELS: Role.INPUT}
    tensors = [Tensor(name=n, shape=(4, 8), dtype="float32", role=role) for n, role in shapes.items()]
    tensors += [Tensor(name=n, shape=(), dtype="float32", role=Role.INPUT) for n in (LEARNING_RATE, LOSS)]
    graph = TrainGraph(name="sure", tensors={t.name: t for t in tensors}, functions={})
    engine = NumpyEngine(graph, sure_sigmoid, {"w": np.full(8, 17.0)}, {"w": lambda g: fault * g})
    before = bytes(engine.saved)
    asked = dataclasses.replace(probe(), program=cast(Any, SimpleNamespace(graph=graph)), loss="mse", trained=("w",))
    found = ask_gradients(engine, asked)
    assert found.is_ok == (fault == 1.0)
    assert found.is_open is False
    assert bytes(engine.saved) == before


def probe_seeds_by_sign() -> int:
    """A seed whose first input is positive while the next one's is not."""
    engine = clipped_network()

    def first_input(seed: int) -> float:
        fill_synthetic(engine, clipped.GRAPH, loss="mse", seed=seed)
        return float(engine.tensor("x")[0, 0])

    return next(seed for seed in range(100) if first_input(seed) > 0 > first_input(seed + 1))
