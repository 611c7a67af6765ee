"""Claims about two samples made one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.dataset.augment.mixing import Mix, draw_mix, mix_into
from edgetrain.dataset.augment.randomness import Address
from edgetrain.errors import UsageError
from edgetrain.recipes import AugmentSection

SHARES = st.floats(0, 1)


def _draws(section: AugmentSection, count: int = 400) -> list[Mix]:
    return [draw_mix(section, Address(seed=1, epoch=2, row=row), samples=50) for row in range(count)]


@given(share=SHARES)
def test_mixup_is_a_weighted_mean(share: float) -> None:
    sample, other = np.zeros((1, 2, 3), np.float32), np.ones((1, 2, 3), np.float32)
    assert mix_into(sample, other, Mix(partner=0, share=share)) == share
    np.testing.assert_allclose(sample, 1 - share, atol=1e-6)


@given(share=SHARES, down=SHARES, across=SHARES)
def test_the_labels_share_is_that_of_the_pixels_that_stayed(share: float, down: float, across: float) -> None:
    sample, other = np.zeros((2, 7, 9), np.float32), np.ones((2, 7, 9), np.float32)
    stayed = mix_into(sample, other, Mix(partner=0, share=share, centre=(down, across)))
    assert stayed == pytest.approx(1 - sample.mean(), abs=1e-6)
    rows, columns = sample[0].any(axis=1), sample[0].any(axis=0)
    assert np.array_equal(sample[0].astype(bool), np.outer(rows, columns))  # a rectangle, the same in each channel
    assert np.array_equal(sample[0], sample[1])


def test_a_picture_with_its_channels_last_is_cut_as_one_with_its_channels_first() -> None:
    mix = Mix(partner=0, share=0.5, centre=(0.3, 0.6))
    first, last = np.zeros((3, 8, 9), np.float32), np.zeros((8, 9, 3), np.float32)
    assert mix_into(first, np.ones_like(first), mix) == mix_into(last, np.ones_like(last), mix)
    np.testing.assert_array_equal(last.transpose(2, 0, 1), first)


def test_partners_come_from_the_whole_part() -> None:
    assert {mix.partner for mix in _draws(AugmentSection(mixup=0.2))} == set(range(50))


def test_shares_follow_the_beta_distribution() -> None:
    shares = np.array([mix.share for mix in _draws(AugmentSection(mixup=0.2))])
    assert shares.mean() == pytest.approx(0.5, abs=0.06)
    assert shares.var() == pytest.approx(0.25 / (2 * 0.2 + 1), abs=0.02)


def test_where_both_are_on_each_gets_about_half_of_the_samples() -> None:
    kinds = [mix.centre is not None for mix in _draws(AugmentSection(mixup=0.2, cutmix=1.0))]
    assert 150 < sum(kinds) < 250
    assert all(mix.centre is not None for mix in _draws(AugmentSection(cutmix=1.0)))
    assert all(mix.centre is None for mix in _draws(AugmentSection(mixup=1.0)))


def test_cutmix_of_a_flat_input_is_refused() -> None:
    flat = np.zeros(64, np.float32)
    with pytest.raises(UsageError, match="takes pictures"):
        mix_into(flat, flat, Mix(partner=0, share=0.5, centre=(0.5, 0.5)))
