"""Claims about contribution analysis, on functions whose gradients are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgetrain.graph.contribution import forward_scores, gradient_scores, row_scores

Problem = tuple[Callable[[], float], dict[str, Any], dict[str, Any]]


def linear(seed: int) -> Problem:
    """A loss that is linear in every tensor: its gradients are the coefficients."""
    rng = np.random.default_rng(seed)
    parameters = {n: rng.standard_normal(s).astype(np.float64) for n, s in (("w", (6, 5)), ("b", (7,)), ("s", ()))}
    slopes = {
        n: rng.standard_normal(p.shape) * scale for (n, p), scale in zip(parameters.items(), (3, 1, 0.2), strict=True)
    }
    return lambda: float(sum((parameters[n] * slopes[n]).sum() for n in parameters)), parameters, slopes


@pytest.mark.parametrize("seed", range(3))
def test_gradient_scores_are_squared_norms(seed: int) -> None:
    _, _, slopes = linear(seed)
    assert gradient_scores(slopes) == {n: pytest.approx(float(np.linalg.norm(g) ** 2)) for n, g in slopes.items()}


@pytest.mark.parametrize("axis", [0, 1])
def test_row_scores_are_the_squared_norms_of_each_output_and_sum_to_the_whole(axis: int) -> None:
    gradient = np.random.default_rng(0).standard_normal((4, 3))
    found = row_scores({"w": gradient, "b": gradient[0]}, {"w": axis})
    outputs = gradient if axis == 0 else gradient.T
    assert found == {"w": pytest.approx([float(row @ row) for row in outputs])}
    assert sum(found["w"]) == pytest.approx(gradient_scores({"w": gradient})["w"])


@pytest.mark.parametrize("seed", range(3))
def test_forward_scores_estimate_the_squared_gradient(seed: int) -> None:
    loss, parameters, slopes = linear(seed)
    found = forward_scores(loss, parameters, list(parameters), probes=2000, seed=seed)
    for name, expected in gradient_scores(slopes).items():
        assert found[name] == pytest.approx(expected, rel=0.15), name


@pytest.mark.parametrize("seed", range(3))
def test_a_few_probes_already_put_tensors_far_apart_in_order(seed: int) -> None:
    loss, parameters, slopes = linear(seed)
    found = forward_scores(loss, parameters, list(parameters), seed=seed)
    expected = gradient_scores(slopes)
    assert sorted(found, key=lambda n: found[n]) == sorted(expected, key=lambda n: expected[n])


def test_curvature_does_not_count_for_a_central_difference() -> None:
    value = np.array([3.0, -1.0])
    found = forward_scores(lambda: float((value**2).sum()), {"w": value}, ["w"], probes=4000)
    assert found["w"] == pytest.approx(4 * 10.0, rel=0.1)


def test_parameters_keep_every_byte_even_when_the_loss_fails() -> None:
    value = np.random.default_rng(0).standard_normal(9).astype(np.float32)
    before = value.tobytes()
    forward_scores(lambda: float(value.sum()), {"w": value}, ["w"])
    assert value.tobytes() == before

    def failing() -> float:
        raise RuntimeError("no loss")

    with pytest.raises(RuntimeError, match="no loss"):
        forward_scores(failing, {"w": value}, ["w"])
    assert value.tobytes() == before


def test_a_tensor_that_the_loss_ignores_scores_nothing() -> None:
    values = {"used": np.ones(3), "unused": np.ones(3)}
    found = forward_scores(lambda: float(values["used"].sum()), values, list(values))
    assert found["unused"] == 0.0 < found["used"]


def test_scores_depend_on_the_seed_and_not_on_the_other_tensors() -> None:
    loss, parameters, _ = linear(0)
    both = forward_scores(loss, parameters, ["w", "b"], seed=1)
    assert forward_scores(loss, parameters, ["b"], seed=1)["b"] == both["b"]
    assert forward_scores(loss, parameters, ["b"], seed=2)["b"] != both["b"]


def test_a_tensor_of_zeros_is_still_moved() -> None:
    value = np.zeros(4)
    assert forward_scores(lambda: float(value.sum()), {"w": value}, ["w"], probes=50)["w"] > 0
