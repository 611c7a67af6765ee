"""Texts with labels, a JSON object a line, as token ids."""

from __future__ import annotations

from random import Random

from edgetrain.dataset.load import load_dataset
from edgetrain.recipes import DataSection, TextSection
from tests.fuzz.harness import CORPUS, Change, documented, file_of
from tests.fuzz.mutations import mutate_json, mutate_lines

WORDS = (b'{"text": "', b'"label": ', b"\\ud800", b"\xef\xbb\xbf", b"NaN", b"1e999")
_VOCABULARY = CORPUS / "vocabulary" / "bert"


def one_input(data: bytes) -> None:
    with documented(), file_of(data, "texts.jsonl") as path:
        section = DataSection(source=str(path), text=TextSection(vocabulary=str(_VOCABULARY), length=8))
        dataset = load_dataset(section)
        _ = dataset.train.features[0]


def mutate(data: bytes, random: Random, change: Change) -> bytes:
    return mutate_lines(data, random, change, mutate_json)
