"""Claims about the machine that rules write kernels for."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from edgetrain_tuner.machine import Caches, Costs, Limits, Machine, Thresholds

NEON = Machine(vector_bits=128, vector_registers=32, cores=4)


@pytest.mark.parametrize(("vector_bits", "lanes"), [(0, 1), (32, 1), (64, 2), (128, 4), (512, 16)])
def test_only_wide_registers_count_as_vectors(vector_bits: int, lanes: int) -> None:
    machine = dataclasses.replace(NEON, vector_bits=vector_bits)
    assert (machine.lanes, machine.has_vectors) == (lanes, lanes >= 4)


@pytest.mark.parametrize("group", [Caches, Costs, Thresholds, Limits])
def test_every_group_of_numbers_says_where_they_come_from(group: type) -> None:
    """A comment before a number, or before the numbers that it is one of, names its source."""
    sources = ("assumption", "chosen", "measured", "datasheet", "inferred", "choice", "adr")
    comment: list[str] = []
    is_open = False
    for line in inspect.getsource(group).splitlines():
        text = line.strip()
        if text.startswith("#"):
            comment = [*comment, text] if is_open else [text]
            is_open = True
        elif text.startswith("@property"):
            break
        elif ": " in text and " = " in text:
            is_open = False
            assert any(source in " ".join(comment).lower() for source in sources), text
