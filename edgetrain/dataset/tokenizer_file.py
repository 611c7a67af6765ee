"""Tokenizers of Hugging Face models, from their `tokenizer.json`: BPE, Unigram, WordPiece and words, by their library.

A BERT-like model's vocab.txt needs no library: see `wordpiece.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.dataset.samples import Array
from edgetrain.errors import DataError
from edgetrain.files.regular_file import require_regular

SUFFIX = ".json"
# What pads where the file does not say it, first found: names of padding, then of the end, as GPT-like models do.
_PADDINGS = ("[PAD]", "<pad>", "<|pad|>", "<PAD>", "<|endoftext|>", "</s>", "<|end_of_text|>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """What fills a row, and on which side."""

    number: int = 0
    type_number: int = 0
    token: str = ""
    side: str = "right"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTokenizer:
    """Texts to what the model reads, with the special tokens that its file asks for."""

    name: str
    library: Any  # a tokenizers.Tokenizer
    padding: Padding

    def inputs(self, text: str, length: int, /) -> Mapping[str, Array]:
        """`length` ids, with a mask that is 0 where they are padding; longer texts are cut, special tokens are kept."""
        self.library.enable_truncation(length)
        self.library.enable_padding(
            length=length,
            direction=self.padding.side,
            pad_id=self.padding.number,
            pad_type_id=self.padding.type_number,
            pad_token=self.padding.token,
        )
        with _told(f"the tokenizer {self.name} cannot read a text"):
            encoded = self.library.encode(text)
        return {
            "input_ids": np.array(encoded.ids, np.int64),
            "attention_mask": np.array(encoded.attention_mask, np.int64),
            "token_type_ids": np.array(encoded.type_ids, np.int64),
        }


def read_tokenizer_file(path: Path, *, length: int) -> FileTokenizer:
    """The tokenizer in the file, for rows of `length`. Raises `DataError` for another file, or without the library."""
    require_regular(path, DataError)
    if not path.is_file():
        raise DataError(f"there is no file {path}", fix="check `data.text.vocabulary`")
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise DataError(
            f"{path} needs the package `tokenizers`, which is not installed",
            why="a vocab.txt of a BERT-like model is read without it",
            fix="pip install 'edgetrain[text]'",
        ) from error
    with _told(f"{path} is not a tokenizer file"):
        library = Tokenizer.from_file(str(path))
    found = FileTokenizer(name=path.name, library=library, padding=_padding(library))
    least = library.num_special_tokens_to_add(is_pair=False)
    if least >= length:
        raise DataError(
            f"`data.text.length` is {length}, and {path.name} adds {least} special tokens to each text",
            fix=f"set `data.text.length={max(3, least + 1)}` or more",
        )
    return found


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """The library's errors as a `DataError`: plain exceptions, and panics of Rust, which are no `Exception`."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise DataError(what, why=str(error), fix="use the tokenizer.json that came with the model") from error


def _padding(library: Any) -> Padding:
    """As the file says; where it says nothing, the first token of `_PADDINGS` that it knows."""
    told = library.padding
    if told is not None:
        return Padding(
            number=told["pad_id"], type_number=told["pad_type_id"], token=told["pad_token"], side=told["direction"]
        )
    known = ((library.token_to_id(token), token) for token in _PADDINGS)
    return next((Padding(number=number, token=token) for number, token in known if number is not None), Padding())
