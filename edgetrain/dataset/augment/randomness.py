"""Random numbers by counting: what a generator gives depends on its address alone, not on what was drawn before."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

_DOMAIN = 0xA06  # keeps the numbers apart from those that order the batches, whose key is the seed, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A sample as an epoch sees it. `row` is its place in the training part, whatever batch it is in."""

    seed: int
    epoch: int
    row: int


def random_at(address: Address, purpose: str) -> np.random.Generator:
    """A generator for one purpose, so that one operation more leaves what the others draw as it was.

    Philox (Salmon et al., 2011) computes its numbers from a counter and a key: purpose, row and epoch are the counter's
    upper words, and leave 2⁶⁴ blocks for each.
    """
    word = zlib.crc32(purpose.encode())
    counter = np.array([0, word, address.row, address.epoch], np.uint64)
    return np.random.Generator(
        np.random.Philox(key=np.array([address.seed % 2**64, _DOMAIN], np.uint64), counter=counter)
    )
