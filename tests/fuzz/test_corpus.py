"""Every input that fuzzing began with, and every one that it found, is read or refused with a documented error."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from edgetrain.errors import DataError, InternalError
from tests.fuzz.harness import FOUND, documented, harness_of, reader_names

_MOST_GROWTH_KB = 1 << 20  # as `python -m tests.fuzz` allows
_INPUTS = [(name, path) for name in reader_names() for path in harness_of(name).inputs]


@pytest.mark.parametrize(("reader", "path"), _INPUTS, ids=[f"{n}-{p.parent.parent.name}-{p.name}" for n, p in _INPUTS])
def test_an_input_is_read_or_refused_with_a_documented_error(reader: str, path: Path) -> None:
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    harness_of(reader).one_input(path.read_bytes())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < _MOST_GROWTH_KB


def test_every_reader_has_a_corpus() -> None:
    assert {name for name, path in _INPUTS if path.parent.parent != FOUND} == set(reader_names())


@pytest.mark.parametrize("error", [KeyError("lost"), InternalError("a bug"), OverflowError(), RecursionError()])
def test_an_undocumented_error_gets_out(error: Exception) -> None:
    with pytest.raises(type(error)), documented():
        raise error


def test_a_documented_error_is_no_finding() -> None:
    with documented():
        raise DataError("the file is broken")
