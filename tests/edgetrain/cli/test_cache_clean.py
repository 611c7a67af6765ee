"""`edgetrain cache clean`: what goes, what stays, and how much it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgetrain.cli.entry import main
from edgetrain.locate import shares_dir
from edgetrain.run.limits.broker import Share, seat

FOLDERS = {"builds": 1000, "zig": 500, "schedules": 70, "shares": 8}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with a file of a known size in each of its folders."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, size in FOLDERS.items():
        (tmp_path / "edgetrain" / name / "inner").mkdir(parents=True)
        (tmp_path / "edgetrain" / name / "inner" / "file").write_bytes(b"0" * size)
    return tmp_path / "edgetrain"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("flags", "left", "size"),
    [
        ((), {"schedules", "shares"}, 1500),
        (("--dry-run",), set(FOLDERS), 1500),
        (("--all", "--dry-run"), set(FOLDERS), 1578),
    ],
    ids=["plain", "dry", "all, dry"],
)
def test_what_can_be_made_again_is_removed_and_counted(
    cache: Path, flags: tuple[str, ...], left: set[str], size: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cache", "clean", *flags, "--json"]) == 0
    assert names(cache) == left
    told = json.loads(capsys.readouterr().out)
    assert told["bytes"] == size == sum(told["folders"].values())


def test_all_removes_the_whole_folder(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "clean", "--all"]) == 0
    assert not cache.exists()
    assert capsys.readouterr().out.endswith("removed 1.578kB\n")
    assert main(["cache", "clean", "--all"]) == 0
    assert capsys.readouterr().out == "removed 0B\n"


def test_what_is_kept_is_said_with_the_command_that_removes_it(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "clean"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1] == "removed 1.5kB"
    assert captured.err == "kept 70B of schedules; `edgetrain cache clean --all` removes them too\n"


def test_a_share_that_a_job_takes_part_in_stays(cache: Path) -> None:
    share = Share.parse("desk=2GB")
    with seat(shares_dir(), share, folder=cache, least_bytes=1, most_bytes=2, notify=print):
        assert main(["cache", "clean", "--all"]) == 0
        assert names(cache) == {"shares"}
    assert main(["cache", "clean", "--all"]) == 0
    assert not cache.exists()


def test_what_a_link_leads_to_is_not_touched(cache: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (cache / "builds").rename(elsewhere)
    (cache / "builds").symlink_to(elsewhere)
    assert main(["cache", "clean", "--json"]) == 0
    assert not (cache / "builds").is_symlink()
    assert (elsewhere / "inner" / "file").stat().st_size == FOLDERS["builds"]
