from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgetrain.dataset.file_bytes import FileTokens
from edgetrain.dataset.samples import NamedSamples, Rows
from edgetrain.dataset.shown import picture_of, shown
from edgetrain.recipes import BytesSection


def test_a_row_of_rows_is_found_in_the_source() -> None:
    source = np.arange(40, dtype=np.float32).reshape(20, 2)
    inner = Rows(samples=source, indices=np.array([9, 4, 7]))
    seen = shown(Rows(samples=inner, indices=np.array([2, 1])), 1, columns=("length", "width"))
    assert (seen.row, seen.text) == (4, "length 8, width 9")


def test_a_sample_from_a_file_has_its_name_and_no_numbers(tmp_path: Path) -> None:
    path = tmp_path / "class" / "a.bin"
    path.parent.mkdir()
    path.write_bytes(b"0123456789")
    seen = shown(FileTokens(paths=(path,), settings=BytesSection()), 0)
    assert (seen.file, seen.text, seen.picture) == ("class/a.bin", "", None)


def test_a_file_that_has_gone_is_named_all_the_same(tmp_path: Path) -> None:
    seen = shown(FileTokens(paths=(tmp_path / "gone" / "b.bin",), settings=BytesSection()), 0)
    assert seen.file == "gone/b.bin"


def test_grey_and_colour_pictures_keep_their_bytes_whatever_the_order_of_their_axes() -> None:
    grey = np.arange(64, dtype=np.uint8).reshape(8, 8)
    colour = np.random.default_rng(0).integers(0, 256, (8, 8, 3)).astype(np.uint8)
    for array, expected in (
        (grey, grey),
        (grey[np.newaxis], grey),
        (grey[..., np.newaxis], grey),
        (colour, colour),
        (colour.transpose(2, 0, 1), colour),
    ):
        np.testing.assert_array_equal(picture_of(array), expected)


def test_a_large_picture_becomes_the_means_of_its_squares() -> None:
    picture = picture_of(np.kron(np.arange(96 * 96).reshape(96, 96) % 251, np.ones((5, 5))).astype(np.uint8))
    np.testing.assert_array_equal(picture, (np.arange(96 * 96).reshape(96, 96) % 251).astype(np.uint8))


def test_floats_are_stretched_to_the_range_of_a_picture() -> None:
    picture = picture_of(np.linspace(-3, 5, 64).reshape(8, 8))
    assert picture is not None
    assert (picture.min(), picture.max()) == (0, 255)
    assert picture_of(np.full((8, 8), 2.5)) is not None


@pytest.mark.parametrize("shape", [(5,), (3, 9), (9, 9, 7), (2, 2, 2, 2)])
def test_other_shapes_are_no_picture(shape: tuple[int, ...]) -> None:
    assert picture_of(np.zeros(shape, np.float32)) is None


def test_a_thin_and_long_picture_shrinks_without_error() -> None:
    picture = picture_of(np.zeros((5, 4000), np.uint8))
    assert picture is not None
    assert max(picture.shape) <= 96


def test_of_samples_with_several_inputs_only_the_row_is_known() -> None:
    samples = NamedSamples(arrays={"a": np.zeros((3, 2)), "b": np.zeros((3, 2))})
    assert shown(samples, 2).text == ""
