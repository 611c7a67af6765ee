"""Claims about how values to predict are trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgetrain.dataset.reading import Scaling
from edgetrain.dataset.samples import Dataset, Part
from edgetrain.recipes import recipe_for_model
from edgetrain.run.loop.targets import scaling_of, with_scaled_targets


def dataset(values: Any, validation: Any = None) -> Dataset:
    def part(labels: Any) -> Part:
        return Part(features=np.zeros((len(labels), 1)), labels=np.asarray(labels))

    held_out = part(np.asarray(validation, np.float32)) if validation is not None else None
    return Dataset(name="d", train=part(values), validation=held_out)


def scaling(values: Any, mode: str = "auto", loss: str = "mse") -> Scaling:
    overrides = (f"data.scale_target={mode}", f"train.loss={loss}")
    return scaling_of(dataset(values), recipe_for_model("m.onnx", overrides, needs_data=False))


PRICES = np.array([200_000, 250_000, 300_000], np.float32)


@pytest.mark.parametrize(
    ("values", "mode", "loss", "is_scaled"),
    [
        (PRICES, "auto", "mse", True),
        (PRICES, "auto", "l1", True),
        (PRICES, "off", "mse", False),
        (PRICES, "auto", "cosine", False),
        (PRICES / 1e9, "auto", "mse", True),
        (PRICES / 1e5, "auto", "mse", False),
        (PRICES / 1e5, "standard", "mse", True),
        (PRICES * 0 + 5e5, "standard", "mse", False),  # all the same
        (np.array([0, 1, 2]), "standard", "mse", False),  # classes
    ],
)
def test_large_and_tiny_values_are_scaled_unless_the_recipe_says_otherwise(
    values: Any, mode: str, loss: str, is_scaled: bool
) -> None:
    assert scaling(values, mode, loss).is_identity != is_scaled


def test_the_scaling_is_of_the_training_part_and_applies_to_every_part() -> None:
    data = dataset(PRICES, [250_000.0, 1_000_000.0])
    found = scaling(PRICES)
    scaled = with_scaled_targets(data, found)
    assert scaled.reading.target == found == Scaling(mean=250_000.0, std=float(np.std(PRICES, dtype=np.float64)))
    assert scaled.train.labels.mean() == pytest.approx(0, abs=1e-6)
    assert scaled.train.labels.std() == pytest.approx(1, abs=1e-6)
    assert scaled.validation is not None
    np.testing.assert_allclose(found.back(scaled.validation.labels), [250_000, 1_000_000], rtol=1e-6)
