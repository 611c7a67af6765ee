"""Claims about texts from strangers: a value, or a `ValueError`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgetrain.files.texts import parse_json, parse_toml, read_regular


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 5000, "{", "", '{"a": }'])
def test_json_that_cannot_be_read_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - that it is one is the claim
        parse_json(text)


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "9" * 5000, "a = [0x" + "f" * 5000 + "]", "a"])
def test_toml_that_cannot_be_read_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        parse_toml(text)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="regular"):
        read_regular(tmp_path / "pipe", most_bytes=10)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic"):
        read_regular(tmp_path / "link", most_bytes=10)


def test_more_than_the_most_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(11))
    assert read_regular(tmp_path / "a", most_bytes=11) == bytes(11)
    with pytest.raises(ValueError, match="longer"):
        read_regular(tmp_path / "a", most_bytes=10)
