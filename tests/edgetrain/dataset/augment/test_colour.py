"""Claims about pictures in other light."""

from __future__ import annotations

import numpy as np
import pytest

from edgetrain.dataset.augment.colour import brighten_randomly, contrast_randomly, saturate_randomly
from edgetrain.dataset.augment.operations import Apply
from edgetrain.dataset.samples import Array

PICTURE = np.random.default_rng(0).random((3, 5, 4), dtype=np.float32)
LUMA = np.array([0.299, 0.587, 0.114])


def _grey(picture: Array) -> Array:
    return np.asarray(np.tensordot(LUMA, picture, axes=1))


@pytest.mark.parametrize("seed", range(5))
def test_brightness_is_one_factor_within_its_share(seed: int) -> None:
    ratio = brighten_randomly(PICTURE, 0.3, np.random.default_rng(seed)) / PICTURE
    assert np.ptp(ratio) < 1e-6
    assert 0.7 <= ratio.mean() <= 1.3


@pytest.mark.parametrize("seed", range(5))
def test_contrast_keeps_how_bright_the_picture_is(seed: int) -> None:
    found = contrast_randomly(PICTURE, 0.5, np.random.default_rng(seed))
    middle = _grey(PICTURE).mean()
    assert _grey(found).mean() == pytest.approx(middle, abs=1e-6)
    ratio = (found - middle) / (PICTURE - middle)
    assert np.median(ratio) == pytest.approx(ratio.mean(), abs=1e-3)
    assert 0.5 <= np.median(ratio) <= 1.5


@pytest.mark.parametrize("seed", range(5))
def test_saturation_keeps_how_bright_each_pixel_is(seed: int) -> None:
    found = saturate_randomly(PICTURE, 0.9, np.random.default_rng(seed))
    np.testing.assert_allclose(_grey(found), _grey(PICTURE), atol=1e-6)
    assert not np.allclose(found, PICTURE)


def test_colours_of_a_grey_picture_stay_grey() -> None:
    grey = np.repeat(PICTURE[:1], 3, axis=0)
    found = saturate_randomly(grey, 0.9, np.random.default_rng(0))
    np.testing.assert_allclose(found, grey, atol=1e-6)


@pytest.mark.parametrize("change", [brighten_randomly, contrast_randomly])
def test_grey_pictures_can_be_changed_too(change: Apply) -> None:
    for picture in (PICTURE[:1], PICTURE[0]):
        found = change(picture, 0.5, np.random.default_rng(1))
        assert found.shape == picture.shape
        assert not np.allclose(found, picture)
