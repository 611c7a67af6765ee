"""The store: a union on disk that neither order, nor crowds, nor kills, nor damage can spoil."""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetrain_tuner.cache.entry import Entry, merge, read_entry
from edgetrain_tuner.cache.errors import CacheError, EntryError
from edgetrain_tuner.cache.jsonl import write_lines
from edgetrain_tuner.cache.store import CHANGED, KNOWN, NEW, Store
from tests.edgetrain_tuner.cache.entries import BOARD, HOST, entry, hash_of, measurement
from tests.edgetrain_tuner.cache.strategies import entries

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "schedules.sqlite"


def exported(folder: Path, *parts: Sequence[Entry]) -> bytes:
    """The bytes that a store exports after these were put, one part a connection."""
    for part in parts:
        with Store.open(folder / "store.sqlite") as store:
            store.put_all(part)
    with Store.open(folder / "store.sqlite") as store:
        write_lines(folder / "out.jsonl", store)
    return (folder / "out.jsonl").read_bytes()


@settings(max_examples=15, deadline=None)
@given(st.lists(entries, max_size=6), st.lists(entries, max_size=6))
def test_two_stores_merged_in_any_order_export_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, a: list[Entry], b: list[Entry]
) -> None:
    folders = [tmp_path_factory.mktemp("merge") for _ in range(4)]
    exports = [
        exported(folder, *parts)
        for folder, parts in zip(folders, ([a, b], [b, a], [a[::-1] + b], [b, a, b, a]), strict=True)
    ]
    assert len(set(exports)) == 1
    # Against a reference too simple to be wrong: a dictionary.
    known: dict[str, Entry] = {}
    for one in (read_entry(e.text) for e in a + b):
        known[one.id] = merge(known[one.id], one) if one.id in known else one
    assert exports[0].decode() == "".join(known[key].text + "\n" for key in sorted(known))


def test_an_export_imports_to_the_same_export(tmp_path: Path, path: Path) -> None:
    with Store.open(path) as store:
        store.put_all(entry(number) for number in range(600))
        assert write_lines(tmp_path / "a.jsonl", store) == 600
    with Store.open(tmp_path / "other.sqlite") as other:
        report = other.import_jsonl(tmp_path / "a.jsonl")
        assert (report.new, report.changed, report.known, report.bad) == (600, 0, 0, ())
        assert other.import_jsonl(tmp_path / "a.jsonl").known == 600
        write_lines(tmp_path / "b.jsonl", other)
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_put_says_what_it_did_and_get_returns_the_whole(path: Path) -> None:
    first, second = entry(measurements=(measurement(machine=1),)), entry(measurements=(measurement(machine=2),))
    with Store.open(path) as store:
        assert store.put_all([first, second, first]) == [NEW, CHANGED, KNOWN]
        assert store.get(first.id) == merge(first, second)
        assert store.get(hash_of(7)) is None
        assert store.put(first) == merge(first, second)
        assert len(store) == 1


def test_an_entry_that_could_not_be_read_back_is_not_stored(path: Path) -> None:
    with Store.open(path) as store:
        with pytest.raises(EntryError):
            store.put(entry(outcome="great"))
        assert list(store) == []


def test_lookup_asks_for_class_and_instruction_set_and_ranks_what_it_finds(path: Path) -> None:
    best = entry(1, measurements=(measurement(1e-3),))
    good = entry(2, measurements=(measurement(1.5e-3),))
    slower = entry(3, outcome="slower", measurements=(measurement(1e-4),))
    neighbour = entry(4, target=dataclasses.replace(HOST, cpu="skylake"))
    foreign = entry(5, target=BOARD)
    other = entry(6, class_=9)
    with Store.open(path) as store:
        store.put_all([other, foreign, neighbour, slower, good, best])
        assert store.lookup(hash_of(1), HOST) == (best, good, slower, neighbour)
        assert store.lookup(hash_of(1), BOARD) == (foreign,)
        assert store.lookup(hash_of(8), HOST) == ()
        assert set(store.by_class(hash_of(1))) == {e.id for e in (best, good, slower, neighbour, foreign)}
        family = store.by_family(hash_of(2))
        assert [e.id for e in family] == sorted(e.id for e in (best, good, slower, neighbour, foreign, other))


def test_bad_lines_are_named_and_the_rest_comes_in(tmp_path: Path, path: Path) -> None:
    good, last = entry(1).text, entry(2).text
    lines = [good, "", "{}", "x" * 100_000, entry(3).text.replace("512", "513"), last, entry(4).text[:-30]]
    (tmp_path / "mixed.jsonl").write_text("\n".join(lines))
    with Store.open(path) as store:
        report = store.import_jsonl(tmp_path / "mixed.jsonl")
        assert report.new == 2
        assert [bad.line for bad in report.bad] == [3, 4, 5, 7]
        reasons = {bad.line: bad.why for bad in report.bad}
        assert "is missing" in reasons[3]
        assert "longer than 4096" in reasons[4]
        assert "changed or damaged" in reasons[5]
        assert "the file ends inside it" in reasons[7]
        assert {e.id for e in store} == {entry(1).id, entry(2).id}


def test_an_import_refuses_what_its_caller_refuses(tmp_path: Path, path: Path) -> None:
    (tmp_path / "two.jsonl").write_text("\n\n".join([entry(1).text, entry(2, outcome="failed").text]) + "\n")
    with Store.open(path) as store:
        report = store.import_jsonl(
            tmp_path / "two.jsonl", refuse=lambda e: "no failures here" if e.outcome == "failed" else None
        )
        assert report.new == 1
        assert [(bad.line, bad.why) for bad in report.bad] == [(3, "no failures here")]


def test_collecting_removes_what_is_not_kept_and_change_numbers_go_on(path: Path) -> None:
    with Store.open(path) as store:
        store.put_all([entry(1), entry(2, outcome="failed")])
        before = store.changes(0, most=10)
        assert [change.number for change in before] == [1, 2]
        assert store.gc(lambda e: e.outcome != "failed") == 1
        assert [e.id for e in store] == [entry(1).id]
        store.put(entry(3))
        assert [change.id for change in store.changes(2, most=10)] == [entry(3).id]


def test_a_change_is_listed_again_and_a_repetition_is_not(path: Path) -> None:
    with Store.open(path) as store:
        store.put_all([entry(1), entry(2)])
        store.put(entry(1))
        assert [c.number for c in store.changes(0, most=9)] == [1, 2]
        store.put(entry(1, measurements=(measurement(machine=5),)))
        assert [(c.id, c.number) for c in store.changes(0, most=9)] == [(entry(2).id, 2), (entry(1).id, 3)]
        assert len(store.changes(0, most=1)) == 1


def test_notes_and_tags_stay(path: Path) -> None:
    with Store.open(path) as store:
        store.set_note("cursor", "17")
        store.set_seen([("a", "1"), ("b", "1")])
        store.set_seen([("a", "2")])
        identity = store.identity
    with Store.open(path) as store:
        assert store.note("cursor") == "17"
        assert store.note("nothing") == ""
        assert store.seen() == {"a": "2", "b": "1"}
        assert store.identity == identity != ""


def tamper(path: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement, values)
    connection.close()


def test_a_row_that_was_changed_by_hand_is_passed_over(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Store.open(path) as store:
        store.put_all([entry(1), entry(2), entry(3)])
    tamper(path, "UPDATE entries SET text = ? WHERE id = ?", entry(4).text, entry(1).id)
    tamper(path, "UPDATE entries SET text = 'no json' WHERE id = ?", entry(2).id)
    with Store.open(path) as store:
        assert [e.id for e in store] == [entry(3).id]
        assert store.get(entry(1).id) is None
        assert set(store.damaged_rows()) == {entry(1).id, entry(2).id}
        assert "was changed and is passed over" in caplog.text
        assert store.put_all([entry(1)]) == [NEW]
        assert store.gc(lambda _: True) == 1
        assert len(store) == 2


@pytest.mark.parametrize(
    "bytes_", [b"this is no database, it is a text file of some length\n" * 100, b"SQLite format 3\0" + b"\xff" * 4096]
)
def test_a_file_that_is_no_database_is_set_aside(path: Path, bytes_: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path.write_bytes(bytes_)
    with Store.open(path) as store:
        store.put(entry())
        assert len(store) == 1
    assert path.with_name(path.name + ".damaged-1").read_bytes() == bytes_
    assert "renamed" in caplog.text
    with Store.open(path) as store:
        assert len(store) == 1


def test_a_database_with_a_broken_page_is_set_aside_in_use_and_what_is_readable_saved(path: Path) -> None:
    with Store.open(path) as store:
        store.put_all(entry(number) for number in range(200))
    size = path.stat().st_size
    with path.open("r+b") as stream:
        stream.seek(size // 2 // 4096 * 4096)
        stream.write(b"\xee" * 3 * 4096)
    with Store.open(path) as store:
        list(store)
        assert 0 < len(store) < 200
        store.put_all(entry(number) for number in range(200))
        assert len(list(store)) == 200
        assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    assert path.with_name(path.name + ".damaged-1").stat().st_size == size


def test_the_database_of_another_program_is_left_alone(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(CacheError, match="another program"):
        Store.open(path)
    assert path.read_bytes() == before


def test_a_newer_version_is_refused(path: Path) -> None:
    Store.open(path).close()
    tamper(path, "PRAGMA user_version = 99")
    with pytest.raises(CacheError, match="newer edgetrain"):
        Store.open(path)


WRITER = """
import sys
from pathlib import Path
from edgetrain_tuner.cache.store import Store
from tests.edgetrain_tuner.cache.entries import entry, measurement
from tests.edgetrain_tuner.cache.strategies import entries

store = Store.open(Path(sys.argv[1]))
machine = int(sys.argv[2])
print("ready", flush=True)
for number in range(int(sys.argv[3])):
    store.put(entry(number, measurements=(measurement(machine=machine),)))
    print(number, flush=True)
"""


def writer(path: Path, *, machine: int, count: int) -> subprocess.Popen[str]:
    paths = os.pathsep.join((str(ROOT), str(ROOT / "tuner"), *filter(None, (os.environ.get("PYTHONPATH"),))))
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(machine), str(count)],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_killed_writer_loses_nothing_that_it_had_put(path: Path) -> None:
    """Killed again and again in the middle of its writing, wherever that is."""
    survived: dict[str, int] = {}
    for machine, lines in itertools.product(range(2), (1, 7, 19)):
        process = writer(path, machine=machine * 100 + lines, count=10_000)
        assert process.stdout is not None
        acknowledged = [int(word) for word in itertools.islice(process.stdout, 1, 1 + lines)]
        process.send_signal(signal.SIGKILL)
        process.communicate()
        survived |= {f"{machine * 100 + lines:016x}": max(acknowledged)}
    with Store.open(path) as store:
        assert store.damaged_rows() == ()
        machines = {e.workload.dims[-1] - 128: {m.machine for m in e.measurements} for e in store}
    for machine_name, last in survived.items():
        assert all(machine_name in machines[number] for number in range(last + 1))
    assert list(path.parent.glob("*.damaged-*")) == []


def test_eight_processes_write_at_once(path: Path) -> None:
    processes = [writer(path, machine=machine, count=20) for machine in range(8)]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    with Store.open(path) as store:
        whole = list(store)
        numbers = [change.number for change in store.changes(0, most=1000)]
    assert len(whole) == 20
    assert all({int(m.machine, 16) for m in e.measurements} == set(range(8)) for e in whole)
    assert len(set(numbers)) == 20
    assert max(numbers) == 160


def test_reading_the_cache_loads_no_compiler() -> None:
    names = "'tvm', 'numpy', 'edgetrain', 'cryptography'"
    check = f"import sys, edgetrain_tuner.cache.store; print([n for n in ({names}) if n in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tuner")))}
    done = subprocess.run([sys.executable, "-c", check], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
