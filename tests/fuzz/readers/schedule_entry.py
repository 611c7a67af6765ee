"""Entries of the schedule cache, a line each, as strangers share them."""

from __future__ import annotations

import re
from random import Random

from edgetrain_tuner.cache.entry import read_entry
from edgetrain_tuner.cache.errors import CacheError
from edgetrain_tuner.cache.jsonl import read_lines
from edgetrain_tuner.cache.trust import Trust
from tests.fuzz.harness import Change, documented, file_of
from tests.fuzz.mutations import mutate_json

_ID = re.compile(rb'"id": ?"[^"]*", ?')
_STRICT = Trust(keys=frozenset({"a" * 64}), require_signature=True)


def one_input(data: bytes) -> None:
    with documented(), file_of(data, "entries.jsonl") as path:
        for _ in read_lines(path):
            pass
    with documented(CacheError):
        entry = read_entry(data)
        assert read_entry(entry.text) == entry, "what is accepted is stored, and must be read back as it is"
        _STRICT.objection(entry)


def mutate(data: bytes, random: Random, change: Change) -> bytes:
    """The id is a hash of the rest, so that it is left out: an entry without one is read as it is."""
    changed = mutate_json(data, random, change)
    return changed if random.random() < 0.1 else _ID.sub(b"", changed)
