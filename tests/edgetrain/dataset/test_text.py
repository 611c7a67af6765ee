"""Claims about reading texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgetrain.dataset.text import read_texts
from edgetrain.dataset.text_files import read_text
from edgetrain.errors import DataError
from edgetrain.recipes import TextSection

VOCABULARY = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nfree\nlunch\n"


@pytest.fixture
def section(tmp_path: Path) -> TextSection:
    (tmp_path / "vocab.txt").write_text(VOCABULARY)
    return TextSection(vocabulary=str(tmp_path / "vocab.txt"), length=6)


def test_a_line_becomes_ids_a_mask_and_types_of_the_length(section: TextSection, tmp_path: Path) -> None:
    lines = [{"text": "Free lunch", "label": "spam"}, {"text": "lunch", "label": "ham"}]
    (tmp_path / "a.jsonl").write_text("\n\n".join(map(json.dumps, lines)))
    part, names, _ = read_texts(tmp_path / "a.jsonl", section)
    assert (names, part.labels.tolist()) == (("ham", "spam"), [1, 0])
    sample = part.features[0]
    assert sample["input_ids"].tolist() == [2, 4, 5, 3, 0, 0]
    assert sample["attention_mask"].tolist() == [1, 1, 1, 1, 0, 0]
    assert sample["token_type_ids"].tolist() == [0] * 6
    assert {values.dtype.name for values in sample.values()} == {"int64"}


def test_numbers_as_labels_and_another_name_for_them(section: TextSection, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "stars": 3}\n{"text": "b", "stars": 0}\n')
    part, names, _ = read_texts(tmp_path / "a.jsonl", section, label="stars")
    assert (names, part.labels.tolist()) == ((), [3, 0])


def test_equal_texts_are_one_group(section: TextSection, tmp_path: Path) -> None:
    lines = [{"text": text, "label": 0} for text in ("a", "b", "a")]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    _, _, groups = read_texts(tmp_path / "a.jsonl", section)
    assert groups[0] == groups[2] != groups[1]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{", r"a\.jsonl:2 is not JSON"),
        ("[1]", r"a\.jsonl:2 has no `text` and `label`"),
        ('{"text": "x"}', r"a\.jsonl:2 has no `text` and `label`"),
        ('{"text": 5, "label": 1}', r"a\.jsonl:2: `text` must be text"),
        ('{"text": "x", "label": null}', r"a\.jsonl:2: `text` must be text"),
    ],
)
def test_a_broken_line_is_named(line: str, expected: str, section: TextSection, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x", "label": 1}\n' + line + "\n")
    with pytest.raises(DataError, match=expected):
        read_texts(tmp_path / "a.jsonl", section)


def test_a_folder_of_text_files_for_each_class(section: TextSection, tmp_path: Path) -> None:
    for name, text in (("t/ham/1.txt", "lunch"), ("t/spam/1.txt", "free"), ("t/spam/old/2.txt", "free free")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    part, names, _ = read_texts(tmp_path / "t", section, exclude=("*/old/*",))
    assert (names, part.labels.tolist()) == (("ham", "spam"), [0, 1])
    assert part.features[1]["input_ids"].tolist() == [2, 4, 3, 0, 0, 0]


def test_a_text_that_is_not_utf_8_is_read_as_latin_1(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"caf\xe9")
    assert read_text(tmp_path / "a.txt") == "café"


def test_an_empty_file_is_a_data_error(section: TextSection, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n")
    with pytest.raises(DataError, match="is empty"):
        read_texts(tmp_path / "a.jsonl", section)


@pytest.mark.parametrize("line", [r'{"text": "a \ud800", "label": 1}', r'{"text": "a", "label": "\udfff"}'])
def test_half_a_character_is_named(line: str, section: TextSection, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x", "label": 1}\n' + line + "\n")
    with pytest.raises(DataError, match=r"a\.jsonl:2 holds half of a character"):
        read_texts(tmp_path / "a.jsonl", section)


@pytest.mark.parametrize("digits", [400, 4000, 5000])
def test_a_label_of_thousands_of_digits_is_a_data_error(digits: int, section: TextSection, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"text": "x", "label": {"9" * digits}}}\n')
    with pytest.raises(DataError, match=r"a\.jsonl"):
        read_texts(tmp_path / "a.jsonl", section)
