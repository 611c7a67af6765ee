"""Claims about random numbers by address."""

from __future__ import annotations

import itertools

import numpy as np

from edgetrain.dataset.augment.randomness import Address, random_at


def test_an_address_gives_the_same_numbers_whatever_was_drawn_before() -> None:
    address = Address(seed=3, epoch=2, row=7)
    first = random_at(address, "flip").random(5)
    random_at(address, "crop").random(1000)
    np.testing.assert_array_equal(random_at(address, "flip").random(5), first)


def test_every_part_of_an_address_counts() -> None:
    found = {
        random_at(Address(seed=seed, epoch=epoch, row=row), purpose).bytes(16)
        for seed, epoch, row, purpose in itertools.product(range(3), range(3), range(3), ("flip", "crop"))
    }
    assert len(found) == 54


def test_the_numbers_are_the_same_on_every_machine_and_in_every_version() -> None:
    """A run that is resumed after an update must go on with the same bits."""
    words = np.frombuffer(random_at(Address(seed=1, epoch=2, row=3), "flip").bytes(8), np.uint32)
    assert words.tolist() == [3703347837, 3905621104]
