"""Claims about which rows are held out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.dataset.hold_out import draw, hold_out

CLASSES = st.lists(st.integers(0, 4), min_size=2, max_size=80)


@given(classes=CLASSES, share=st.floats(0.01, 0.9))
def test_every_class_of_two_rows_stays_and_no_row_is_lost(classes: list[int], share: float) -> None:
    labels = np.array(classes)
    kept, held = hold_out(draw(len(labels)), share, classes=labels)
    assert sorted([*kept, *held]) == list(range(len(labels)))
    assert len(kept) >= 1
    assert len(held) >= 1
    if len(set(classes)) < len(classes):
        assert {c for c in classes if classes.count(c) >= 2} <= set(labels[kept].tolist())


@given(counts=st.lists(st.integers(4, 60), min_size=2, max_size=6), share=st.floats(0.05, 0.5))
def test_classes_keep_their_proportions(counts: list[int], share: float) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    _, held = hold_out(draw(len(labels)), share, classes=labels)
    for label, count in enumerate(counts):
        assert abs(int((labels[held] == label).sum()) - share * count) <= 1.01
    assert abs(len(held) - share * len(labels)) <= 1.01


def test_a_rare_class_is_held_out_by_its_share() -> None:
    labels = np.repeat([0, 1], [196, 4])
    _, held = hold_out(draw(200), 0.25, classes=labels)
    assert labels[held].sum() == 1


@given(
    sizes=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), min_size=3, max_size=20),
    share=st.floats(0.05, 0.6),
)
def test_copies_stay_together_while_classes_are_balanced(sizes: list[tuple[int, int]], share: float) -> None:
    groups = np.repeat(np.arange(len(sizes)), [size for _, size in sizes])
    labels = np.repeat([label for label, _ in sizes], [size for _, size in sizes])
    kept, held = hold_out(draw(len(groups)), share, groups=groups, classes=labels)
    assert not set(groups[kept]) & set(groups[held])
    assert len(kept) >= 1
    assert len(held) >= 1


def test_persons_with_all_classes_are_drawn_whole() -> None:
    persons, labels = np.repeat(np.arange(10), 7), np.tile(np.arange(7), 10)
    split = [hold_out(draw(70), 0.3, groups=persons, classes=c) for c in (None, labels)]
    assert np.array_equal(split[0][1], split[1][1])


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_same_numbers_give_the_same_rows(share: float) -> None:
    labels = np.arange(50) % 3
    first, second = (hold_out(draw(50), share, classes=labels) for _ in range(2))
    assert np.array_equal(first[1], second[1])
