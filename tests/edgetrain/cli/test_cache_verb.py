"""`edgetrain cache`: what it says, what it does, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgetrain.cli.cache_local import details, listing
from edgetrain.cli.cache_sharing import summary
from edgetrain.cli.entry import main
from edgetrain.locate import schedules_path, served_path, teams_dir
from edgetrain_tuner.cache.levels import SEED_FOLDER, Found, Seed
from edgetrain_tuner.cache.store import Store
from edgetrain_tuner.cache.sync import Refused, Transfer
from edgetrain_tuner.cache.teams import Team, remembered_teams
from edgetrain_tuner.cache.trust import can_verify
from tests.edgetrain.cli.test_entry import assert_golden
from tests.edgetrain_tuner.cache.conftest import serving
from tests.edgetrain_tuner.cache.entries import BOARD, entry, measurement

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with three schedules, and nothing else."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("EDGETRAIN_CACHE_TOKEN", raising=False)
    with Store.open(schedules_path()) as store:
        store.put_all([entry(1), entry(2, outcome="failed", measurements=()), entry(3, class_=5, target=BOARD)])
    return tmp_path


def run(*words: object) -> int:
    return main(["cache", *map(str, words)])


def answer(capsys: Capture, *words: object, code: int = 0) -> Any:
    """The JSON that a command prints."""
    capsys.readouterr()
    assert run(*words, "--json") == code
    return json.loads(capsys.readouterr().out)


def test_a_list_reads_as_reviewed() -> None:
    found = [
        Found(entry=entry(1), level="user", source="schedules.sqlite"),
        Found(entry=entry(3, target=BOARD, outcome="failed", measurements=()), level="team", source="https://x"),
    ]
    assert_golden("cache-ls.txt", listing(found))


def test_one_schedule_reads_as_reviewed() -> None:
    whole = entry(1, measurements=(measurement(), measurement(0.0015, machine=2)))
    assert_golden("cache-show.txt", details(Found(entry=whole, level="user", source="schedules.sqlite")))


def test_a_transfer_is_told_in_a_line() -> None:
    team = Team(url="https://cache.example.org", folder=Path())
    refused = tuple(Refused(id=f"{n}", why=why) for n, why in enumerate(["it is not signed"] * 2 + ["not JSON"]))
    transfer = Transfer(entries=41, classes=12, refused=refused)
    assert summary(team, transfer, "pulled", "from") == (
        "pulled 41 schedules for 12 kernel classes from https://cache.example.org, "
        "3 refused: it is not signed; not JSON"
    )
    one = Transfer(entries=1, classes=1)
    assert summary(team, one, "pushed", "to") == "pushed 1 schedule for 1 kernel class to https://cache.example.org"


def test_what_ships_is_listed_and_counted_unless_it_is_switched_off(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "seed" not in [level["level"] for level in answer(capsys, "stats")["levels"]]
    monkeypatch.delenv("EDGETRAIN_SCHEDULE_SEED")
    shipped = [one.id for one in Seed.read(SEED_FOLDER)]
    assert sorted(one["id"] for one in answer(capsys, "ls", "--level", "seed")) == shipped
    (level,) = [level for level in answer(capsys, "stats")["levels"] if level["level"] == "seed"]
    assert (level["source"], level["schedules"]) == ("edgetrain", len(shipped))


def test_lists_can_be_narrowed_and_one_can_be_shown(capsys: Capture) -> None:
    assert len(answer(capsys, "ls")) == 3
    (board,) = answer(capsys, "ls", "aarch64")
    assert board["id"] == entry(3, class_=5, target=BOARD).id
    assert answer(capsys, "ls", "--level", "seed") == []  # the tests switch it off
    assert answer(capsys, "show", board["id"][:8])["target"]["cpu"] == "cortex-a72"
    assert run("show", "abc") == 2
    assert run("show", "0" * 64) == 2
    assert "0 schedules" in capsys.readouterr().err


def test_stats_count(capsys: Capture) -> None:
    counts = answer(capsys, "stats")
    assert (counts["schedules"], counts["classes"], counts["measurements"]) == (3, 2, 2)
    assert counts["outcomes"] == {"failed": 1, "faster": 2}
    assert run("stats") == 0
    assert "3 for 2 kernel classes" in capsys.readouterr().out


def test_verify_finds_what_was_changed_by_hand_and_gc_removes_it(capsys: Capture) -> None:
    assert run("verify") == 0
    assert capsys.readouterr().out == "3 schedules, 0 signed\n"
    connection = sqlite3.connect(schedules_path())
    with connection:
        connection.execute("UPDATE entries SET text = replace(text, '512', '513') WHERE id = ?", (entry(1).id,))
    connection.close()
    assert run("verify") == 1
    assert f"bad {entry(1).id[:12]} (user): it was changed or damaged" in capsys.readouterr().out
    assert [problem["id"] for problem in answer(capsys, "verify", code=1)["problems"]] == [entry(1).id]
    assert answer(capsys, "gc")["removed"] == 1
    assert run("verify") == 0


def test_gc_keeps_what_it_is_told_to(capsys: Capture) -> None:
    with Store.open(schedules_path()) as store:
        store.put_all(entry(1, tile=(5, 8 * n), measurements=(measurement(1e-3 * n),)) for n in range(2, 5))
    assert answer(capsys, "gc") == {"removed": 0, "schedules": 6, "bytes": schedules_path().stat().st_size}
    assert answer(capsys, "gc", "--drop-failed")["removed"] == 1
    assert answer(capsys, "gc", "--keep-best", 2)["removed"] == 2
    with Store.open(schedules_path()) as store:
        best = [e.measurements[0].seconds for e in store if e.workload.dims == entry(1).workload.dims]
    assert sorted(best) == [1e-3, 2e-3]
    assert answer(capsys, "gc", "--rules", 2)["schedules"] == 0


def test_a_file_goes_out_and_comes_in(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    assert run("export", file) == 0
    assert capsys.readouterr().out == f"exported 3 schedules to {file}\n"
    assert run("export", "-") == 0
    assert capsys.readouterr().out == file.read_text()
    with file.open("a") as stream:
        stream.write('{"format": "edgetrain.sch')
    assert run("import", file, "--store", tmp_path / "other.sqlite") == 0
    said = capsys.readouterr()
    assert said.out == "imported 3 schedules: 3 new, 0 updated, 1 lines refused\n"
    assert "line 4: not JSON" in said.err


@pytest.mark.parametrize("content", [b"\x7fELF\x00\x01\n\x02", b"{}\n"])
def test_a_file_without_a_schedule_is_bad_data(tmp_path: Path, content: bytes, capsys: Capture) -> None:
    (tmp_path / "bad.jsonl").write_bytes(content)
    assert run("import", tmp_path / "bad.jsonl") == 5
    assert "line 1:" in capsys.readouterr().err
    assert run("import", tmp_path / "nothing.jsonl") == 5


def test_two_people_share_by_a_folder(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer(capsys, "push", tmp_path / "team") == {
        "url": (tmp_path / "team").as_uri(),
        "schedules": 3,
        "classes": 2,
        "refused": [],
    }
    assert answer(capsys, "push", tmp_path / "team")["schedules"] == 0
    assert answer(capsys, "push", tmp_path / "team", "--all")["schedules"] == 3
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "bob"))
    assert run("pull", tmp_path / "team") == 0
    said = capsys.readouterr()
    assert said.out == f"pulled 3 schedules for 2 kernel classes from {(tmp_path / 'team').as_uri()}\n"
    assert {one["level"] for one in answer(capsys, "ls")} == {"team"}
    # From now on without its name.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with Store.open(schedules_path()) as store:
        store.put(entry(9))
    assert answer(capsys, "push", tmp_path / "team")["schedules"] == 1
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "bob"))
    assert answer(capsys, "pull")["remotes"][0]["schedules"] == 1
    assert answer(capsys, "pull", tmp_path / "team", "--forget") == {"forgotten": (tmp_path / "team").as_uri()}
    assert answer(capsys, "ls") == []
    assert run("pull", tmp_path / "team", "--forget") == 2


def test_a_remote_that_fails_stops_no_other(capsys: Capture, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert run("push", tmp_path / name) == 0
        assert run("pull", tmp_path / name) == 0
    for path in sorted((tmp_path / "a").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (tmp_path / "a").rmdir()
    capsys.readouterr()
    assert run("pull") == 2
    said = capsys.readouterr()
    assert f"from {(tmp_path / 'b').as_uri()}" in said.out
    assert f"{(tmp_path / 'a').as_uri()}: " in said.err
    reports = answer(capsys, "pull", code=2)["remotes"]
    assert [report.get("error") for report in reports] == ["UsageError", None]
    assert len(remembered_teams(teams_dir())) == 2


def test_a_remote_that_never_answered_is_not_remembered(tmp_path: Path) -> None:
    assert run("pull", tmp_path / "nothing") == 2
    assert remembered_teams(teams_dir()) == ()
    assert list(teams_dir().iterdir()) == []


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("pull", "ftp://host/x"), 2),
        (("pull", "https://ada:secret@host/x"), 2),
        (("pull", "http://127.0.0.1:9"), 6),
        (("push", "http://127.0.0.1:9"), 6),
        (("push", "s3+https://127.0.0.1:9/bucket"), 2),
        (("pull", "git+file:///nowhere/at/all.git"), 2),
        (("pull",), 2),
        (("pull", "--forget"), 2),
        (("push",), 2),
        (("show",), 2),
        (("stats", "word"), 2),
        (("lss",), 2),
        (("ls", "--port", "1"), 2),
        (("ls", "--level", "theirs"), 2),
        (("gc", "--keep-best", "0"), 2),
        (("serve", "--host", "0.0.0.0"), 2),
        (("serve", "--port", "99999"), 2),
        (("pull", "http://127.0.0.1:9", "--token-file", "nothing"), 2),
        (("pull", "http://127.0.0.1:9", "--require-signature"), 2),
        (("pull", "http://127.0.0.1:9", "--trusted-keys", "nothing"), 2),
        (("push", "http://127.0.0.1:9", "--sign", "nothing"), 2),
        (("ls", "--store", "/proc/no/such/place"), 6),
    ],
)
def test_mistakes_have_their_exit_codes(words: tuple[str, ...], code: int, capsys: Capture) -> None:
    assert run(*words) == code
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "secret" not in said
    assert "internal" not in said


def test_the_token_comes_from_a_file_or_the_environment_and_is_remembered_by_its_file(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("open-sesame\n")
    with serving(tmp_path / "served.sqlite", token="open-sesame") as url:
        assert run("push", url) == 2
        assert "wants a token" in capsys.readouterr().err
        assert answer(capsys, "push", url, "--token-file", tmp_path / "token")["schedules"] == 3
        assert answer(capsys, "pull", url, "--token-file", tmp_path / "token")["schedules"] == 3
        assert answer(capsys, "pull")["remotes"][0]["schedules"] == 0
        (tmp_path / "token").write_text("guess\n")
        assert run("pull") == 2
        assert "guess" not in "".join(capsys.readouterr())
        monkeypatch.setenv("EDGETRAIN_CACHE_TOKEN", "open-sesame")
        assert answer(capsys, "push", url, "--all")["schedules"] == 3
    for file in teams_dir().glob("*.json"):
        assert "sesame" not in file.read_text()


@pytest.mark.parametrize("content", ["", "two\nlines", "ümlaut", "x" * 5000])
def test_what_is_no_token_is_not_sent(tmp_path: Path, content: str, capsys: Capture) -> None:
    (tmp_path / "token").write_text(content)
    assert run("pull", "http://127.0.0.1:9", "--token-file", tmp_path / "token") == 2
    assert content == "" or content not in capsys.readouterr().err


needs_cryptography = pytest.mark.skipif(
    not can_verify(), reason="signatures need cryptography: pip install 'edgetrain[sign]'"
)


@needs_cryptography
def test_who_requires_signatures_gets_those_of_the_trusted_and_goes_on_requiring_them(
    tmp_path: Path, capsys: Capture
) -> None:
    from tests.edgetrain_tuner.cache.test_trust import new_key

    (tmp_path / "key.pem").write_bytes(new_key())
    assert run("push", tmp_path / "team", "--sign", tmp_path / "key.pem") == 0
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("signed with the key "))
    public = line.split()[-1]
    (tmp_path / "keys").write_text(f"# the team\n{public} ada\n")
    strict = ("--trusted-keys", tmp_path / "keys", "--require-signature")
    assert answer(capsys, "pull", tmp_path / "team", *strict)["schedules"] == 3
    with Store.open(tmp_path / "mallory.sqlite") as store:
        store.put(entry(66))
    assert answer(capsys, "push", tmp_path / "team", "--store", tmp_path / "mallory.sqlite")["schedules"] == 1
    later = answer(capsys, "pull", "--trusted-keys", tmp_path / "keys")["remotes"][0]
    assert (later["schedules"], [refused["why"] for refused in later["refused"]]) == (0, ["it is not signed"])
    assert run("pull") == 2
    (tmp_path / "config" / "edgetrain").mkdir(parents=True)
    (tmp_path / "config" / "edgetrain" / "trusted-keys").write_text(public.upper())
    assert answer(capsys, "pull")["remotes"][0]["schedules"] == 0
    assert answer(capsys, "verify")["signed"] == 3


def test_a_file_of_keys_that_holds_something_else_is_refused(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "keys").write_text("# fine\n\nssh-ed25519 AAAA\n")
    assert run("import", tmp_path / "keys", "--trusted-keys", tmp_path / "keys") == 2
    assert "line 3" in capsys.readouterr().err


def test_serve_answers_until_it_is_stopped(tmp_path: Path, capsys: Capture) -> None:
    root = Path(__file__).resolve().parents[3]
    paths = os.pathsep.join((str(root), str(root / "tuner"), *filter(None, (os.environ.get("PYTHONPATH"),))))
    process = subprocess.Popen(
        [
            sys.executable,
            *["-m", "edgetrain", "cache", "serve", "--port", "0", "--json", "--read-only", "--store"],
            schedules_path(),
        ],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    served = json.loads(process.stdout.readline())
    assert served["schedules"] == 3
    assert answer(capsys, "pull", served["url"])["schedules"] == 3
    assert run("push", served["url"], "--all") == 2
    assert "read-only" in capsys.readouterr().err
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == 0
    assert said.splitlines()[-1] == "stopped"


def test_a_served_store_is_not_the_one_that_says_what_was_measured_here(tmp_path: Path, capsys: Capture) -> None:
    assert run("serve", "--store", schedules_path()) == 2
    assert "add --read-only" in capsys.readouterr().err
    assert served_path() != schedules_path()
    schedules_path().parent.mkdir(parents=True, exist_ok=True)
    schedules_path().touch()
    (tmp_path / "symbolic.sqlite").symlink_to(schedules_path())
    (tmp_path / "hard.sqlite").hardlink_to(schedules_path())
    for name in ("symbolic", "hard"):
        assert run("serve", "--store", tmp_path / f"{name}.sqlite") == 2


def test_an_imported_schedule_is_listed_apart_from_what_was_found_here(capsys: Capture, tmp_path: Path) -> None:
    stranger = entry(7, measurements=(measurement(machine=1),))
    (tmp_path / "strange.jsonl").write_text(stranger.text + "\n")
    assert run("import", tmp_path / "strange.jsonl") == 0
    capsys.readouterr()
    levels = {one["id"]: one["level"] for one in answer(capsys, "ls")}
    assert levels.pop(stranger.id) == "imported"
    assert set(levels.values()) == {"user"}


def test_a_port_that_is_taken_is_told(tmp_path: Path, capsys: Capture) -> None:
    with serving(tmp_path / "served.sqlite") as url:
        assert run("serve", "--port", url.rpartition(":")[2]) == 6
    assert "choose another" in capsys.readouterr().err
