"""Claims about tokenizers from a file, each trained here on a few sentences."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from edgetrain.dataset.samples import Array
from edgetrain.dataset.text import read_texts, tokenizer_of
from edgetrain.dataset.tokenizer_file import read_tokenizer_file
from edgetrain.errors import DataError
from edgetrain.recipes import TextSection

SENTENCES = ["free lunch for all", "the lunch is not free", "all that is for lunch", "naïve café, über alles"]
TEXTS = ["free lunch", "", "not a word of this is known: 漢字 🙂", "lunch " * 50]
LENGTH = 8


def bpe() -> Any:
    """As GPT-2's and RoBERTa's: bytes, with a beginning and an end."""
    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(special_tokens=special, vocab_size=300, initial_alphabet=alphabet)
    found.train_from_iterator(SENTENCES, trainer)
    found.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return found


def unigram() -> Any:
    """As T5's and XLM-R's: pieces of words, an end alone."""
    found = Tokenizer(models.Unigram())
    found.normalizer = normalizers.NFKC()
    found.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(special_tokens=special, vocab_size=60, unk_token="<unk>")
    found.train_from_iterator(SENTENCES, trainer)
    found.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return found


def wordpiece() -> Any:
    """As BERT's, with types of tokens."""
    found = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    found.normalizer = normalizers.BertNormalizer(lowercase=True)
    found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    found.train_from_iterator(SENTENCES, trainers.WordPieceTrainer(special_tokens=special, vocab_size=80))
    found.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return found


KINDS: Mapping[str, Callable[[], Any]] = {"bpe": bpe, "unigram": unigram, "wordpiece": wordpiece}


def saved(tokenizer: Any, folder: Path) -> Path:
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def row(sample: Mapping[str, Array], name: str = "input_ids") -> list[int]:
    return [int(number) for number in sample[name]]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_the_librarys_cut_and_padded_to_one_length(kind: str, text: str, tmp_path: Path) -> None:
    theirs = KINDS[kind]()
    ours = read_tokenizer_file(saved(theirs, tmp_path), length=LENGTH).inputs(text, LENGTH)
    whole = theirs.encode(text).ids
    added = theirs.num_special_tokens_to_add(False)
    last = whole[-1:]  # the end, in each of the three
    expected = whole if len(whole) <= LENGTH else whole[: LENGTH - 1] + last
    assert added <= len(whole)
    padding = next(number for token in ("<pad>", "[PAD]") if (number := theirs.token_to_id(token)) is not None)
    assert row(ours) == expected + [padding] * (LENGTH - len(expected))
    assert row(ours, "attention_mask") == [1] * len(expected) + [0] * (LENGTH - len(expected))
    assert {values.dtype.name for values in ours.values()} == {"int64"}
    assert {values.shape for values in ours.values()} == {(LENGTH,)}


def test_a_files_own_padding_is_kept(tmp_path: Path) -> None:
    given = bpe()
    given.enable_padding(direction="left", pad_id=2, pad_token="</s>", pad_type_id=1)
    sample = read_tokenizer_file(saved(given, tmp_path), length=40).inputs("free lunch", 40)
    missing = 40 - sum(row(sample, "attention_mask"))
    assert row(sample)[:missing] == [2] * missing
    assert row(sample, "attention_mask")[:missing] == [0] * missing
    assert row(sample, "token_type_ids")[:missing] == [1] * missing


def test_a_files_own_length_does_not_cut(tmp_path: Path) -> None:
    given = bpe()
    given.enable_truncation(3)
    sample = read_tokenizer_file(saved(given, tmp_path), length=6).inputs("the lunch is not free for all", 6)
    assert sum(row(sample, "attention_mask")) == 6


def test_texts_of_a_table_are_read_with_it(tmp_path: Path) -> None:
    lines = [{"text": "free lunch", "label": "spam"}, {"text": "lunch", "label": "ham"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    section = TextSection(vocabulary=str(saved(unigram(), tmp_path)), length=LENGTH)
    part, names, _ = read_texts(tmp_path / "a.jsonl", section)
    assert names == ("ham", "spam")
    theirs = unigram().encode("lunch").ids
    assert row(part.features[1])[: len(theirs)] == theirs


def test_special_tokens_need_room(tmp_path: Path) -> None:
    given = bpe()
    given.post_processor = processors.TemplateProcessing(
        single="<s> <s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    with pytest.raises(DataError, match=r"`data.text.length` is 3, and tokenizer.json adds 3 special") as caught:
        read_tokenizer_file(saved(given, tmp_path), length=3)
    assert "data.text.length=4" in caught.value.fix


@pytest.mark.parametrize("content", ["", "{}", '{"version": "1.0"}', "[1, 2]"])
def test_another_file_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(DataError, match="is not a tokenizer file"):
        tokenizer_of(TextSection(vocabulary=str(tmp_path / "tokenizer.json")))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no file .*tokenizer\.json"):
        tokenizer_of(TextSection(vocabulary=str(tmp_path / "tokenizer.json")))


def test_without_the_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(bpe(), tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(DataError, match="needs the package `tokenizers`") as caught:
        tokenizer_of(TextSection(vocabulary=str(path)))
    assert caught.value.fix == "pip install 'edgetrain[text]'"
