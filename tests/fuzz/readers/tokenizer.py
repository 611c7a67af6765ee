"""A tokenizer.json, and a text through it."""

from __future__ import annotations

from edgetrain.dataset.text import tokenizer_of
from edgetrain.recipes import TextSection
from tests.fuzz.harness import documented, file_of
from tests.fuzz.mutations import mutate_json

mutate = mutate_json
_TEXT = "Dear friend, 東京 the  déjà-vu costs 12 €!"


def one_input(data: bytes) -> None:
    with documented(), file_of(data, "tokenizer.json") as path:
        tokenizer = tokenizer_of(TextSection(vocabulary=str(path), length=8))
        for text in ("", _TEXT):
            inputs = tokenizer.inputs(text, 8)
            assert all(len(values) == 8 for values in inputs.values()), "every row has the model's length"
