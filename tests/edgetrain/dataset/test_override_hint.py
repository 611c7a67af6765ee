"""Claims about overrides in messages: pasted into a shell, they are what was meant."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.dataset.override_hint import override_hint
from edgetrain.recipes import parse_scalar

_TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_characters="\x7f"))


@given(st.integers(-(2**40), 2**40) | _TEXT.filter(lambda text: text == text.strip()) | st.lists(st.integers() | _TEXT))
def test_a_shell_and_the_recipe_read_back_what_was_meant(value: Any) -> None:
    (word,) = shlex.split(override_hint("data.key", value)[1:-1])
    key, _, text = word.partition("=")
    assert key == "data.key"
    assert parse_scalar(text.strip()) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [((32, 32), "'k=[32,32]'"), (3, "k=3"), ("mean", "k=mean"), ("a b", "'k=a b'"), (["id"], """'k=["id"]'""")],
)
def test_only_what_needs_quotes_has_them(value: Any, expected: str) -> None:
    assert override_hint("k", value) == f"`{expected}`"
