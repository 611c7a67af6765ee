"""Claims about pictures that are flipped, cropped, rotated and shifted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgetrain.dataset.augment.geometry import crop, crop_randomly, flip, flip_randomly, rotate, shift, shift_randomly

Picture = np.ndarray[Any, np.dtype[Any]]
SIDES = st.integers(1, 9)
PICTURES = st.tuples(st.sampled_from([1, 3]), SIDES, SIDES).flatmap(
    lambda shape: arrays(np.float32, shape, elements=st.floats(0, 1, width=32))
)
SHARES = st.floats(0, 1)


@given(picture=PICTURES, axis=st.sampled_from([-1, -2]))
def test_a_flip_is_its_own_inverse(picture: Picture, axis: int) -> None:
    assert np.array_equal(flip(flip(picture, axis), axis), picture)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("horizontal", {(0, 1, 2, 3), (1, 0, 3, 2)}),
        ("vertical", {(0, 1, 2, 3), (2, 3, 0, 1)}),
        ("both", {(0, 1, 2, 3), (1, 0, 3, 2), (2, 3, 0, 1), (3, 2, 1, 0)}),
    ],
)
def test_flipping_at_random_gives_each_of_the_modes_pictures(mode: str, expected: set[tuple[int, ...]]) -> None:
    picture, random = np.arange(4.0).reshape(1, 2, 2), np.random.default_rng(0)
    found = [tuple(flip_randomly(picture, mode, random).ravel().astype(int)) for _ in range(200)]
    assert set(found) == expected
    assert all(found.count(one) > 100 / len(expected) for one in expected)


@given(picture=PICTURES, share=st.floats(0, 0.99), seed=st.integers(0, 9))
def test_a_crop_keeps_the_shape_and_the_range(picture: Picture, share: float, seed: int) -> None:
    found = crop_randomly(picture, share, np.random.default_rng(seed))
    assert found.shape == picture.shape
    assert found.min() >= picture.min() - 1e-6
    assert found.max() <= picture.max() + 1e-6


@given(picture=PICTURES, down=SHARES, across=SHARES)
def test_a_crop_that_keeps_everything_changes_nothing(picture: Picture, down: float, across: float) -> None:
    np.testing.assert_array_equal(crop(picture, kept=1.0, down=down, across=across), picture)


def test_a_crop_shows_the_part_that_it_keeps() -> None:
    picture = np.zeros((1, 8, 8), np.float32)
    picture[:, :4, 4:] = 1  # the upper right quarter
    np.testing.assert_array_equal(crop(picture, kept=0.5, down=0.0, across=1.0)[0, :-1, 1:], np.ones((7, 7)))
    np.testing.assert_array_equal(crop(picture, kept=0.5, down=1.0, across=0.0)[0, 1:, :-1], np.zeros((7, 7)))


@given(picture=PICTURES)
def test_rotating_by_nothing_changes_nothing(picture: Picture) -> None:
    np.testing.assert_array_equal(rotate(picture, 0.0), picture)


@given(picture=PICTURES)
def test_half_a_turn_is_both_flips(picture: Picture) -> None:
    np.testing.assert_allclose(rotate(picture, 180.0), picture[..., ::-1, ::-1], atol=1e-5)


@given(picture=SIDES.flatmap(lambda side: arrays(np.float32, (2, side, side), elements=st.floats(0, 1, width=32))))
def test_a_quarter_turn_of_a_square_goes_counter_clockwise(picture: Picture) -> None:
    np.testing.assert_allclose(rotate(picture, 90.0), np.rot90(picture, axes=(1, 2)), atol=1e-5)


def _rotated_slowly(picture: Picture, degrees: float) -> Picture:
    """One pixel after the other, with zeros all round."""
    height, width = picture.shape[1:]
    angle, found = np.radians(degrees), np.zeros(picture.shape)
    for row in range(height):
        for column in range(width):
            down, across = row - (height - 1) / 2, column - (width - 1) / 2
            y = down * np.cos(angle) + across * np.sin(angle) + (height - 1) / 2
            x = across * np.cos(angle) - down * np.sin(angle) + (width - 1) / 2
            for near_y in (int(np.floor(y)), int(np.floor(y)) + 1):
                for near_x in (int(np.floor(x)), int(np.floor(x)) + 1):
                    if 0 <= near_y < height and 0 <= near_x < width:
                        weight = (1 - abs(y - near_y)) * (1 - abs(x - near_x))
                        found[:, row, column] += weight * picture[:, near_y, near_x]
    return found


@given(picture=PICTURES, degrees=st.floats(-180, 180))
def test_a_rotation_reads_between_the_pixels(picture: Picture, degrees: float) -> None:
    np.testing.assert_allclose(rotate(picture, degrees), _rotated_slowly(picture, degrees), atol=2e-3)


@given(picture=PICTURES, down=st.integers(-9, 9), across=st.integers(-9, 9))
def test_a_shift_moves_pixels_and_leaves_zeros(picture: Picture, down: int, across: int) -> None:
    framed = np.pad(picture, ((0, 0), (9, 9), (9, 9)))
    height, width = picture.shape[1:]
    expected = framed[:, 9 - down : 9 - down + height, 9 - across : 9 - across + width]
    np.testing.assert_array_equal(shift(picture, down=down, across=across), expected)


def test_a_random_shift_goes_no_further_than_its_share_in_any_direction() -> None:
    picture, random = np.zeros((1, 10, 20), np.float32), np.random.default_rng(0)
    picture[0, 5, 10] = 1
    places = {tuple(np.argwhere(shift_randomly(picture, 0.1, random)[0])[0]) for _ in range(300)}
    assert places == {(row, column) for row in range(4, 7) for column in range(8, 13)}
