"""Which rows are held out. The same numbers give the same rows, on every machine and in every run."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

# Part of the split's definition: another number would move samples between training and validation.
_SPLIT_SEED = 0x5EED


def draw(samples: int, limit: int | None = None) -> Array:
    """So many of the rows (all where there is no limit), in the order of the draw."""
    return np.random.Generator(np.random.PCG64(_SPLIT_SEED)).permutation(samples)[:limit]


def hold_out(order: Array, share: float, *, groups: Array | None = None, classes: Array | None = None) -> Split:
    """The rows that stay and those held out, both sorted: the first `share` of `order`, or whole groups of about it.

    At least one row or group is held out, and one stays. With `classes` (one for each row of the source) each class is
    held out by about the same share, and a class of two rows or groups keeps one. Where a group has rows of several
    classes, whole groups are drawn from all of them.
    """
    if groups is None:
        groups_of = None if classes is None else np.arange(len(order))
    else:
        groups_of = np.unique(groups[order], return_inverse=True)[1]
    if groups_of is None:
        count = min(len(order) - 1, max(1, round(len(order) * share)))
        return np.sort(order[count:]), np.sort(order[:count])
    if classes is not None and _is_pure(groups_of, classes[order]):
        is_held_out = _by_class(groups_of, classes[order], share)
    else:
        is_held_out = _whole_groups(groups_of, share)
    return np.sort(order[~is_held_out]), np.sort(order[is_held_out])


Split = tuple[Array, Array]


def _whole_groups(groups: Array, share: float) -> Array:
    """The number of groups whose rows together come closest to the share."""
    present, group_of, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    drawn = draw(len(present))
    distance = np.abs(np.cumsum(sizes[drawn]) - share * len(groups))
    count = min(len(present) - 1, int(distance.argmin()) + 1)
    is_held_out: Array = np.isin(group_of, drawn[:count])
    return is_held_out


def _is_pure(groups: Array, classes: Array) -> bool:
    """Whether no group has rows of two classes."""
    pairs = np.unique(np.stack([groups, classes]), axis=1)
    return int(pairs.shape[1]) == len(np.unique(groups))


def _by_class(groups: Array, classes: Array, share: float) -> Array:
    """Class by class, whole groups. What rounding leaves over in one class is made up for in the next."""
    is_held_out = np.zeros(len(groups), bool)
    owed = 0.0  # rows that the classes so far should have held out, and did not
    for name in np.unique(classes):
        rows = np.flatnonzero(classes == name)
        present, first, sizes = np.unique(groups[rows], return_index=True, return_counts=True)
        # In the order that `order` has them: it was drawn.
        drawn = np.argsort(first)
        wanted = share * len(rows) + owed
        sums = np.concatenate(([0], np.cumsum(sizes[drawn])))
        # A tie holds out fewer; one group of the class stays.
        count = min(int(np.abs(sums - wanted).argmin()), len(present) - 1)
        owed = wanted - float(sums[count])
        is_held_out[rows] = np.isin(groups[rows], present[drawn[:count]])
    if not is_held_out.any():  # classes of one row each: one is held out all the same
        return _whole_groups(groups, share)
    return is_held_out
