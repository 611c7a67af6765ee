from __future__ import annotations

import pytest

from edgetrain.dataset.reading import Reading, Scaling
from edgetrain.errors import DataError


def test_a_reading_is_read_back_from_its_text() -> None:
    reading = Reading(
        class_names=("cat", "dog"), columns=("age", "height"), fills=(1.5, -2.0), target=Scaling(mean=3.0, std=0.5)
    )
    assert Reading.from_json(reading.to_json(), where="here") == reading


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"format": "edgetrain.reading/9"}',
        '{"format": "edgetrain.reading/1", "target": 3}',
        '{"format": "edgetrain.reading/1", "target": {"std": 0}}',
        '{"format": "edgetrain.reading/1", "class_names": [1]}',
        "[" * 100_000,
    ],
)
def test_a_broken_reading_is_named(text: str) -> None:
    with pytest.raises(DataError, match="the run's reading"):
        Reading.from_json(text, where="the run's reading")
