"""Claims about what a sample is taken for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetrain.dataset.augment.kinds import Kind, channels_of, kind_of
from edgetrain.dataset.convert import Conversion
from edgetrain.dataset.load import load_dataset
from edgetrain.dataset.samples import NamedSamples, Part
from edgetrain.recipes import DataSection


def part_of(features: Any) -> Part:
    return Part(features=features, labels=np.zeros(len(features), np.int64))


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (np.zeros((4, 8, 8), np.uint8), Kind.PICTURE),
        (np.zeros((4, 8, 8, 3), np.uint8), Kind.PICTURE),
        (np.zeros((4, 1, 8, 8), np.float32), Kind.PICTURE),
        (np.zeros((4, 3, 50), np.float32), Kind.SERIES),
        (np.zeros((4, 12), np.float32), Kind.TABLE),
        (np.zeros((4, 64), np.uint8), Kind.TABLE),
        (np.zeros((4, 12), np.int64), Kind.TOKENS),
        (NamedSamples(arrays={"image": np.zeros((4, 8, 8), np.uint8)}), Kind.PICTURE),
        (NamedSamples(arrays={"ids": np.zeros((4, 5), np.int64), "mask": np.zeros((4, 5), np.int64)}), Kind.TOKENS),
        (NamedSamples(arrays={"image": np.zeros((4, 8, 8)), "age": np.zeros((4, 1))}), Kind.SEVERAL),
    ],
)
def test_arrays_are_known_by_type_and_shape(features: Any, expected: Kind) -> None:
    part = part_of(features)
    assert kind_of(part) is expected
    assert kind_of(part.take(np.array([2, 0])).take(np.array([1]))) is expected


def test_files_are_known_by_their_reader(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image", reason="pip install 'edgetrain[vision]'")
    for name in "ab":
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(2):
            pillow.new("L", (6, 6)).save(tmp_path / "photos" / name / f"{number}.png")
            (tmp_path / "files" / name).mkdir(parents=True, exist_ok=True)
            (tmp_path / "files" / name / f"{number}.bin").write_bytes(bytes([number] * 30 + [ord(name)]))
    (tmp_path / "steps.csv").write_text(
        "series,label,ax\n" + "".join(f"{series},{series % 2},{step}\n" for series in range(4) for step in range(8))
    )

    def kind_in(source: str, **settings: Any) -> Kind:
        return kind_of(load_dataset(DataSection(source=str(tmp_path / source), **settings)).train)

    from edgetrain.recipes import SeriesSection

    assert kind_in("photos") is Kind.PICTURE
    assert kind_in("files", format="bytes") is Kind.TOKENS
    assert kind_in("steps.csv", format="series", series=SeriesSection(window=4, hop=4)) is Kind.SERIES


@pytest.mark.parametrize(
    ("shape", "conversion", "expected"),
    [
        ((4, 8, 8), Conversion(), 1),
        ((4, 8, 8), Conversion(channels=3), 3),
        ((4, 8, 8, 3), Conversion(), 3),
        ((4, 4, 8, 8), Conversion(), 4),
    ],
)
def test_channels_are_those_that_the_model_sees(shape: tuple[int, ...], conversion: Conversion, expected: int) -> None:
    assert channels_of(part_of(np.zeros(shape, np.uint8)), conversion) == expected
