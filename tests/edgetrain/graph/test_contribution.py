"""Claims about contribution analysis, on functions whose gradients are known."""

from __future__ import annotations

import numpy as np
import pytest

from edgetrain.graph.contribution import gradient_scores, row_scores


@pytest.mark.parametrize("seed", range(3))
def test_gradient_scores_are_squared_norms(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gradients = {name: rng.standard_normal(shape) for name, shape in (("w", (6, 5)), ("b", (7,)), ("s", (1,)))}
    expected = {name: pytest.approx(float(np.linalg.norm(g) ** 2)) for name, g in gradients.items()}
    assert gradient_scores(gradients) == expected


@pytest.mark.parametrize("axis", [0, 1])
def test_row_scores_are_the_squared_norms_of_each_output_and_sum_to_the_whole(axis: int) -> None:
    gradient = np.random.default_rng(0).standard_normal((4, 3))
    found = row_scores({"w": gradient, "b": gradient[0]}, {"w": axis})
    outputs = gradient if axis == 0 else gradient.T
    assert found == {"w": pytest.approx([float(row @ row) for row in outputs])}
    assert sum(found["w"]) == pytest.approx(gradient_scores({"w": gradient})["w"])
