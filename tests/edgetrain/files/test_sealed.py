from __future__ import annotations

import json
from collections.abc import Iterator

import onnx
import pytest

from edgetrain.files.sealed import SEAL, is_sealed, is_whole_model, parse_sealed, sealed, with_seal
from edgetrain.recipes import load_recipe

DATA = {"format": "edgetrain.test/1", "name": "ä", "numbers": [1, 2.5, None], "last": "x"}


def flips(content: bytes) -> Iterator[bytes]:
    for place in range(len(content)):
        for bit in range(8):
            yield content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]


def test_what_is_sealed_comes_back() -> None:
    text = sealed(json.dumps(DATA, indent=1) + "\n")
    assert parse_sealed(text) == DATA
    assert parse_sealed(text.encode()) == DATA
    assert json.loads(text).keys() - DATA.keys() == {SEAL}
    assert is_sealed(text.encode())


def test_a_text_without_a_seal_is_one_of_an_older_version() -> None:
    assert parse_sealed(json.dumps(DATA)) == DATA
    assert parse_sealed("[1]") == [1]


@pytest.mark.parametrize("text", [load_recipe("digits").to_json(), json.dumps(DATA), '{"a": ""}'])
def test_every_changed_bit_is_noticed(text: str) -> None:
    for changed in flips(sealed(text).encode()):
        with pytest.raises(ValueError, match=r"."):
            parse_sealed(changed)


def test_a_text_that_is_cut_or_grows_is_noticed() -> None:
    text = sealed(json.dumps(DATA, indent=1))
    for changed in (*(text[:length] for length in range(len(text) - 1)), text + " ", text[:-1]):
        with pytest.raises(ValueError, match=r"."):
            parse_sealed(changed)


def test_a_sealed_model_is_a_model_whose_changed_bits_are_noticed() -> None:
    model = onnx.ModelProto(ir_version=8, producer_name="test")
    model.metadata_props.add(key="own", value="1")
    content = b"".join(with_seal([model.SerializeToString()]))
    again = onnx.load_model_from_string(content)
    assert again.producer_name == "test"
    assert [entry.key for entry in again.metadata_props] == ["own", "edgetrain.sha256"]
    assert is_whole_model(content)
    assert not any(is_whole_model(changed) for changed in flips(content))
    assert not any(is_whole_model(content[:length]) for length in range(len(content)))
