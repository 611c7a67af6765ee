"""BERT's tokenizer: words and punctuation, then the longest known pieces of each word. Pure Python, from a vocab.txt.

The rules are those of the uncased BERT models (Devlin et al.'s `tokenization.py`); a test compares every id with the
`tokenizers` package. That package reads every other kind of tokenizer (`tokenizer_file.py`); a vocab.txt needs none.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgetrain.dataset.samples import Array
from edgetrain.errors import DataError
from edgetrain.files.regular_file import require_regular

_CLASSIFY, _SEPARATE, _UNKNOWN, _PAD = "[CLS]", "[SEP]", "[UNK]", "[PAD]"
_CONTINUES = "##"
_LONGEST_WORD = 100  # characters; a longer one is unknown, as in BERT
# First and last code points of the ideographs, each of which is a word of its own.
_IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WordPiece:
    """Texts to token ids. `ids` maps each piece of the vocabulary to its line number."""

    ids: Mapping[str, int]
    lowercase: bool = True

    @property
    def padding(self) -> int:
        return self.ids[_PAD]

    def encode(self, text: str, length: int) -> list[int]:
        """At most `length` ids: the classification token, the text's pieces, the separator. Reads no further."""
        tokens = [self.ids[_CLASSIFY]]
        for word in self.words(text):
            tokens += self._pieces(word)
            if len(tokens) >= length - 1:
                break
        return [*tokens[: length - 1], self.ids[_SEPARATE]]

    def inputs(self, text: str, length: int, /) -> Mapping[str, Array]:
        """What BERT-like models read: ids, padded at their end, the mask of those that are no padding, and types."""
        tokens = self.encode(text, length)
        ids = np.full(length, self.padding, np.int64)
        ids[: len(tokens)] = tokens
        mask = (np.arange(length) < len(tokens)).astype(np.int64)
        return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros(length, np.int64)}

    def words(self, text: str) -> Iterator[str]:
        """Runs of letters, and each mark of punctuation and each ideograph by itself."""
        word: list[str] = []
        for character in self._cleaned(text):
            if character == " " or _is_alone(character):
                if word:
                    yield "".join(word)
                    word = []
                if character != " ":
                    yield character
            elif len(word) <= _LONGEST_WORD:  # of a longer one no more is needed: it is unknown
                word.append(character)
        if word:
            yield "".join(word)

    def _cleaned(self, text: str) -> Iterator[str]:
        """Characters without control characters, every white space a blank, lower case and bare of accents if asked."""
        for character in text:
            if character in "\t\n\r":
                yield " "
            elif character == "\ufffd" or unicodedata.category(character).startswith("C"):
                continue
            elif character.isspace():
                yield " "
            elif self.lowercase and not character.isascii():
                decomposed = unicodedata.normalize("NFD", character)
                yield from (c for c in decomposed.lower() if unicodedata.category(c) != "Mn")
            else:
                yield character.lower() if self.lowercase else character

    def _pieces(self, word: str) -> list[int]:
        if len(word) > _LONGEST_WORD:
            return [self.ids[_UNKNOWN]]
        pieces: list[int] = []
        start = 0
        while start < len(word):
            prefix = _CONTINUES if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self.ids), None)
            if end is None:
                return [self.ids[_UNKNOWN]]
            pieces.append(self.ids[prefix + word[start:end]])
            start = end
        return pieces


def read_vocabulary(path: Path, *, lowercase: bool = True) -> WordPiece:
    """The tokenizer of a vocab.txt: one piece on each line. Raises `DataError` where a special token is missing."""
    require_regular(path, DataError)
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read", why=str(error), fix="check `data.text.vocabulary`") from error
    ids = {piece.rstrip("\r"): number for number, piece in enumerate(lines) if piece}
    missing = [token for token in (_PAD, _UNKNOWN, _CLASSIFY, _SEPARATE) if token not in ids]
    if missing:
        raise DataError(
            f"{path} is not a WordPiece vocabulary",
            why=f"it has no line {', '.join(f'`{token}`' for token in missing)}",
            fix="use the vocab.txt of a BERT-like model",
        )
    return WordPiece(ids=ids, lowercase=lowercase)


def _is_alone(character: str) -> bool:
    code = ord(character)
    if any(first <= code <= last for first, last in _IDEOGRAPHS):
        return True
    # All ASCII that is neither letter nor digit counts as punctuation, `$` and `~` too, whatever Unicode says.
    is_ascii_mark = 33 <= code <= 126 and not character.isalnum()
    return is_ascii_mark or unicodedata.category(character).startswith("P")
