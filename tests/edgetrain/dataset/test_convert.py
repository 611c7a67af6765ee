"""Claims about turning a stored sample into the model's input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgetrain.dataset.convert import Conversion, check_sample, convert, convert_sample, fitting_note
from edgetrain.errors import DataError


def converted(sample: np.ndarray[Any, Any], shape: tuple[int, ...], **settings: Any) -> np.ndarray[Any, Any]:
    out = np.full(shape, np.nan, np.float32)
    convert(sample, out, Conversion(**settings))
    return out


def bilinear_reference(image: np.ndarray[Any, Any], height: int, width: int) -> np.ndarray[Any, Any]:
    """One pixel at a time, from the definition: centres aligned, edges repeated."""
    old_height, old_width = image.shape
    out = np.empty((height, width))
    for i in range(height):
        for j in range(width):
            y = min(max((i + 0.5) * old_height / height - 0.5, 0), old_height - 1)
            x = min(max((j + 0.5) * old_width / width - 0.5, 0), old_width - 1)
            top, left = int(y), int(x)
            bottom, right = min(top + 1, old_height - 1), min(left + 1, old_width - 1)
            a, b = y - top, x - left
            upper = image[top, left] * (1 - b) + image[top, right] * b
            lower = image[bottom, left] * (1 - b) + image[bottom, right] * b
            out[i, j] = upper * (1 - a) + lower * a
    return out


@pytest.mark.parametrize("seed", range(5))
def test_bilinear_resizing_agrees_with_its_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    old, new = rng.integers(1, 9, 2), rng.integers(1, 12, 2)
    image = rng.random(old, np.float32)
    found = converted(image, (1, *new), resize=tuple(int(n) for n in new))
    np.testing.assert_allclose(found[0], bilinear_reference(image, *new), atol=1e-5)


def test_nearest_resizing_repeats_pixels() -> None:
    image = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    found = converted(image, (1, 4, 4), resize=(4, 4), interpolation="nearest")
    assert np.array_equal(found[0], np.kron(image, np.ones((2, 2))))


def test_bytes_become_0_to_1_and_floats_stay() -> None:
    assert converted(np.array([0, 51, 255], np.uint8), (3,)).tolist() == pytest.approx([0, 0.2, 1])
    assert converted(np.array([0.0, 51.0, 255.0]), (3,)).tolist() == [0, 51, 255]
    assert converted(np.array([7, -7]), (2,)).tolist() == [7, -7]


def test_colour_images_become_channels_first() -> None:
    image = np.random.default_rng(0).random((5, 6, 3), np.float32)
    assert np.array_equal(converted(image, (3, 5, 6)), image.transpose(2, 0, 1))
    assert np.array_equal(converted(image.transpose(2, 0, 1), (3, 5, 6)), image.transpose(2, 0, 1))


def test_a_grey_image_is_repeated_only_when_asked() -> None:
    image = np.random.default_rng(0).random((4, 4), np.float32)
    assert np.array_equal(converted(image, (3, 4, 4), channels=3), np.stack([image] * 3))
    with pytest.raises(DataError, match=r"data\.channels=3"):
        converted(image, (3, 4, 4))


def test_mean_and_deviation_apply_per_channel() -> None:
    image = np.ones((2, 2, 3), np.float32)
    found = converted(image, (3, 2, 2), mean=(1.0, 0.0, -1.0), std=(1.0, 2.0, 4.0))
    assert found[:, 0, 0].tolist() == [0, 0.5, 0.5]
    with pytest.raises(DataError, match="2 values"):
        converted(image, (3, 2, 2), mean=(1.0, 0.0))


def test_flat_features_and_images_convert_into_each_other() -> None:
    features = np.arange(12, dtype=np.float32)
    assert np.array_equal(converted(features, (1, 3, 4)), features.reshape(1, 3, 4))
    assert np.array_equal(converted(features.reshape(3, 4), (12,)), features)


def test_an_image_of_another_size_is_refused_with_the_setting_that_helps() -> None:
    with pytest.raises(DataError, match=r"\[28, 28\] does not fit .*\[1, 8, 8\]") as caught:
        check_sample(np.zeros((28, 28)), {"image": ((1, 8, 8), "float32")}, Conversion())
    assert caught.value.fix == "add `'data.resize=[8,8]'`"
    check_sample(np.zeros((28, 28)), {"image": ((1, 8, 8), "float32")}, Conversion(resize=(8, 8)))


def test_an_image_turned_on_its_side_does_not_pass_for_the_same_size() -> None:
    with pytest.raises(DataError, match="does not fit"):
        converted(np.zeros((4, 6), np.float32), (1, 6, 4))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(DataError, match="NaN or infinity"):
        converted(np.array([1.0, value]), (2,))


def test_text_is_refused() -> None:
    with pytest.raises(DataError, match="type"):
        converted(np.array(["a"]), (1,))


def test_whole_numbers_go_to_a_whole_input_as_they_are_even_bytes() -> None:
    out = np.zeros(3, np.int64)
    convert(np.array([0, 7, 255], np.uint8), out, Conversion(mean=(5.0,), std=(2.0,)))
    assert out.tolist() == [0, 7, 255]


@pytest.mark.parametrize(
    ("sample", "dtype", "expected"),
    [
        (np.array([0.5, 1.0]), np.int64, "type `float64`"),
        (np.array([1, 2, 3]), np.int64, r"\[3\] does not fit"),
        (np.array([1, 2**40]), np.int32, "`int32` cannot"),
        (np.array([1, -1]), np.uint8, "`uint8` cannot"),
    ],
)
def test_a_whole_input_refuses_what_it_cannot_hold(sample: np.ndarray[Any, Any], dtype: Any, expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        convert(sample, np.zeros(2, dtype), Conversion())


def test_a_sample_of_several_arrays_goes_to_the_inputs_by_name() -> None:
    outs: dict[str, np.ndarray[Any, Any]] = {"ids": np.zeros(2, np.int64), "image": np.zeros(1, np.float32)}
    convert_sample({"image": np.array([3.0]), "unused": np.zeros(9), "ids": np.array([4, 5])}, outs, Conversion())
    assert outs["ids"].tolist() == [4, 5]
    assert outs["image"].tolist() == [3.0]


def test_a_single_array_goes_to_a_single_input_whatever_the_names() -> None:
    outs = {"x": np.zeros(2, np.float32)}
    convert_sample({"other": np.array([1.0, 2.0])}, outs, Conversion())
    assert outs["x"].tolist() == [1, 2]
    convert_sample(np.array([3.0, 4.0]), outs, Conversion())
    assert outs["x"].tolist() == [3, 4]


def test_a_missing_input_is_named_with_what_is_there() -> None:
    outs = {"ids": np.zeros(2, np.int64), "mask": np.zeros(2, np.int64)}
    with pytest.raises(DataError, match="lacks `mask`") as caught:
        convert_sample({"ids": np.zeros(2, np.int64), "masks": np.zeros(2, np.int64)}, outs, Conversion())
    assert "ids, masks" in caught.value.why
    with pytest.raises(DataError, match=r"2 inputs \(ids, mask\)"):
        convert_sample(np.zeros(2), outs, Conversion())
    with pytest.raises(DataError, match=r"input `ids`: .* does not fit"):
        check_sample(
            {"ids": np.zeros(3, np.int64), "mask": np.zeros(2, np.int64)},
            {"ids": ((2,), "int64"), "mask": ((2,), "int64")},
            Conversion(),
        )


def test_16_bit_pictures_become_0_to_1_and_other_whole_numbers_stay() -> None:
    picture = np.array([[0, 65535], [13107, 65535]], np.uint16)
    assert converted(picture, (1, 2, 2))[0].tolist() == [[0, 1], [pytest.approx(0.2), 1]]
    assert converted(np.array([0, 65535], np.uint16), (2,)).tolist() == [0, 65535]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_a_picture_takes_the_size_and_the_channels_of_the_model(dtype: Any) -> None:
    white = np.iinfo(dtype).max
    grey, colour = np.full((6, 9), white, dtype), np.zeros((12, 5, 3), dtype)
    colour[..., 1] = white
    assert converted(grey, (3, 4, 4)).tolist() == np.ones((3, 4, 4)).tolist()
    assert converted(colour, (1, 4, 4)) == pytest.approx(np.full((1, 4, 4), 0.587))
    assert converted(colour, (3, 4, 4))[:, 0, 0].tolist() == [0, 1, 0]


def test_a_picture_with_a_size_in_the_recipe_is_not_resized_again() -> None:
    with pytest.raises(DataError, match="does not fit"):
        converted(np.zeros((9, 9), np.uint8), (1, 4, 4), resize=(5, 5))


def test_shrinking_a_picture_skips_no_pixel() -> None:
    stripes = np.zeros((64, 64), np.uint8)
    stripes[::4] = 255  # straight lines between pixels 8 apart would see all of them, or none
    found = converted(stripes, (1, 8, 8))
    assert found == pytest.approx(np.full((1, 8, 8), 0.25), abs=1e-6)


def test_a_model_whose_channels_come_last_takes_pictures_too() -> None:
    picture = np.random.default_rng(0).integers(0, 255, (5, 6, 3), np.uint8)
    found = converted(picture, (5, 6, 3), mean=(0.0, 0.5, 1.0))
    np.testing.assert_allclose(found, picture / np.float32(255) - [0, 0.5, 1], atol=1e-6)
    flat = np.arange(90, dtype=np.float32)
    assert np.array_equal(converted(flat, (5, 6, 3)), flat.reshape(5, 6, 3))


@pytest.mark.parametrize(
    ("shape", "resize", "is_told"),
    [((3, 8, 8), (), True), ((8, 8, 3), (), True), ((3, 8, 8), (8, 8), False), ((3, 6, 4), (), False)],
)
def test_resizing_by_itself_is_told_with_an_example(
    shape: tuple[int, ...], resize: tuple[int, ...], is_told: bool
) -> None:
    pictures = np.zeros((5, 6, 4, 3), np.uint8)
    note = fitting_note(pictures, {"x": (shape, "float32")}, Conversion(resize=resize))
    assert ("such as 6 × 4, are resized to the model's 8 × 8" in note) == is_told
    assert not fitting_note(pictures.astype(np.float32), {"x": (shape, "float32")}, Conversion())


def test_durations_are_no_numbers() -> None:
    with pytest.raises(DataError, match="timedelta"):
        check_sample(np.zeros((1, 8, 8), "m8[s]"), {"image": ((1, 8, 8), "float32")}, Conversion())


def test_complex_numbers_are_refused_and_not_cut() -> None:
    with pytest.raises(DataError, match="complex numbers"):
        check_sample(np.zeros((1, 8, 8), np.complex64), {"image": ((1, 8, 8), "float32")}, Conversion())
