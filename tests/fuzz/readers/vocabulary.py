"""A vocab.txt, and its own text through it."""

from __future__ import annotations

from edgetrain.dataset.text import tokenizer_of
from edgetrain.dataset.text_files import read_text
from edgetrain.recipes import TextSection
from tests.fuzz.harness import documented, file_of

WORDS = (b"[PAD]\n", b"[UNK]\n", b"[CLS]\n", b"[SEP]\n", b"##", b"\xef\xbb\xbf", b"\xe6\x9d\xb1", b"\xcc\x81")


def one_input(data: bytes) -> None:
    with documented(), file_of(data, "vocab.txt") as path:
        for lowercase in (True, False):
            tokenizer = tokenizer_of(TextSection(vocabulary=str(path), length=8, lowercase=lowercase))
            inputs = tokenizer.inputs(read_text(path), 8)
            assert all(len(values) == 8 for values in inputs.values()), "every row has the model's length"
