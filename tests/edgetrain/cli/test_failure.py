from __future__ import annotations

import errno
import os
import shutil

import pytest

from edgetrain.cli import entry
from edgetrain.cli.command import Verb
from edgetrain.cli.failure import as_edgetrain_error
from edgetrain.errors import ERRORS, EdgetrainError
from edgetrain.units import show_bytes


def full(path: str) -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


@pytest.mark.parametrize("kind", sorted(ERRORS))
def test_our_own_errors_stay_as_they_are(kind: str) -> None:
    error = ERRORS[kind]("what", why="why", fix="fix")
    assert as_edgetrain_error(error) is error


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (full("/disk/file"), 6, "`/disk/file`"),
        (shutil.Error([("a", "/disk/b", str(full("/disk/b")))]), 6, "`/disk/b`"),
        (PermissionError(errno.EACCES, "Permission denied", "/root/x"), 6, "`/root/x`"),
        (MemoryError(), 6, "out of memory"),
        (KeyboardInterrupt(), 130, "nothing was changed"),
        (ZeroDivisionError("division by zero"), 1, "internal error: ZeroDivisionError: division by zero"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_every_other_exception_has_words_and_a_code(error: BaseException, code: int, told: str) -> None:
    found = as_edgetrain_error(error)
    assert found.exit_code == code
    assert told in found.what
    assert found.fix


@pytest.mark.parametrize(("limit", "is_known"), [(204_800_000, True), (8_000_000_000, False)])
def test_a_limit_on_addresses_is_told_with_what_is_needed(
    limit: int, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgetrain.cli.failure.address_space_bytes", lambda: limit)
    error = as_edgetrain_error(MemoryError())
    assert (error.exit_code, error.fix) == (6, "raise it: `ulimit -v unlimited`")
    assert ("needs about 210MB" in error.why) == is_known
    assert show_bytes(limit) in error.what


def test_a_path_that_is_too_long_is_the_users_to_shorten() -> None:
    error = as_edgetrain_error(OSError(errno.ENAMETOOLONG, "File name too long", "b" * 5000))
    assert error.exit_code == 2
    assert len(error.what) < 200


def test_a_descriptor_is_not_told_as_a_path() -> None:
    assert "`3`" not in as_edgetrain_error(IsADirectoryError(errno.EISDIR, "Is a directory", 3)).what


def test_an_error_that_is_its_own_cause_is_told() -> None:
    error = EdgetrainError("what")
    error.__cause__ = ValueError("on the way")
    error.__cause__.__cause__ = error
    assert as_edgetrain_error(error) is error


@pytest.mark.parametrize("error", [full("x"), shutil.Error([("a", "b", str(full("b")))])], ids=["write", "copy"])
def test_a_full_disk_is_told_how_to_get_space(error: OSError) -> None:
    assert as_edgetrain_error(error).fix.startswith("free space")


def run_raising(error: BaseException, words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    def run(*_: object) -> int:
        raise error

    verb = Verb(name="break", summary="", description="", examples=("edgetrain break",), run=run)
    monkeypatch.setattr(entry, "VERBS", {"break": verb})
    return entry.main(["break", *words])


@pytest.mark.parametrize(
    ("words", "shows_traceback"), [([], False), (["-v"], True), (["--verbose"], True)], ids=["plain", "-v", "--verbose"]
)
def test_an_unexpected_error_shows_its_traceback_only_when_asked(
    words: list[str], shows_traceback: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_raising(ZeroDivisionError("oops"), words, monkeypatch) == 1
    told = capsys.readouterr().err
    assert "error: internal error: ZeroDivisionError: oops" in told
    assert ("Traceback" in told) is shows_traceback


def test_our_own_errors_never_show_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_raising(EdgetrainError("this", why="that", fix="do so"), ["-v"], monkeypatch) == 1
    assert capsys.readouterr().err == "error: this\nwhy: that\n\nhint: do so\n"
