"""What holds for every kind of remote."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from edgetrain_tuner.cache.entry import Entry, merge
from edgetrain_tuner.cache.errors import AddressError, EntryError, MissingEntryError
from edgetrain_tuner.cache.jsonl import write_lines
from edgetrain_tuner.cache.remotes.open import normal_address, open_remote
from edgetrain_tuner.cache.remotes.remote import Access, Remote, id_of_name, read_as
from edgetrain_tuner.cache.store import Store
from edgetrain_tuner.cache.sync import pull, push
from edgetrain_tuner.cache.trust import Trust
from tests.edgetrain_tuner.cache.conftest import Opener
from tests.edgetrain_tuner.cache.entries import entry, hash_of, measurement


def put(remote: Remote, *entries: Entry) -> None:
    for one in entries:
        remote.put(one)
    remote.finish()


def ids_at(remote: Remote) -> list[str]:
    return [listed.id for listed in remote.changes("").listed]


def test_what_one_puts_another_gets(opener: Opener) -> None:
    put(opener(), entry(1), entry(2))
    other = opener()
    assert other.get(entry(1).id) == entry(1)
    assert sorted(ids_at(other)) == sorted([entry(1).id, entry(2).id])


def test_an_empty_remote_has_nothing(opener: Opener) -> None:
    remote = opener()
    remote.finish()
    assert ids_at(remote) == []
    assert remote.index(hash_of(1)) == ()
    with pytest.raises(MissingEntryError):
        remote.get(entry().id)


def test_the_index_of_a_class_has_its_ids_alone(opener: Opener) -> None:
    put(opener(), entry(1), entry(2), entry(3, class_=7))
    remote = opener()
    assert remote.index(hash_of(1)) == tuple(sorted((entry(1).id, entry(2).id)))
    assert remote.index(hash_of(7)) == (entry(3, class_=7).id,)
    assert remote.index(hash_of(8)) == ()


def test_two_people_who_put_the_same_schedule_have_both_measurements_there(opener: Opener) -> None:
    ada, bob = (entry(measurements=(measurement(machine=machine),)) for machine in (1, 2))
    put(opener(), ada)
    put(opener(), bob)
    put(opener(), bob)
    assert opener().get(ada.id) == merge(ada, bob)


def test_people_who_push_at_once_lose_nothing(opener: Opener) -> None:
    """The same schedules, each with a measurement of their own, and one schedule of their own."""
    failures: list[BaseException] = []

    def person(number: int, remote: Remote) -> None:
        try:
            shared = [entry(n, measurements=(measurement(machine=number),)) for n in range(3)]
            put(remote, *shared, entry(100 + number))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=person, args=(number, opener())) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    remote = opener()
    assert len(ids_at(remote)) == 7
    for number in range(3):
        assert {int(m.machine, 16) for m in remote.get(entry(number).id).measurements} == set(range(4))


def test_a_pull_brings_all_and_the_next_only_what_changed(opener: Opener, tmp_path: Path) -> None:
    put(opener(), *(entry(number, class_=number % 3) for number in range(10)))
    with Store.open(tmp_path / "mine.sqlite") as store:
        steps: list[tuple[int, int]] = []
        first = pull(opener(), store, trust=Trust(), progress=lambda *step: steps.append(step))
        assert (first.entries, first.classes, first.refused) == (10, 3, ())
        assert steps[-1] == (10, 10)
        assert len(store) == 10
        assert pull(opener(), store, trust=Trust()).entries == 0
        put(opener(), entry(3, class_=0, measurements=(measurement(machine=9),)), entry(11))
        assert pull(opener(), store, trust=Trust()).entries == 2
        known = store.get(entry(3, class_=0).id)
        assert known is not None
        assert {m.machine for m in known.measurements} == {f"{1:016x}", f"{9:016x}"}


def test_a_push_gives_all_and_the_next_only_what_changed(opener: Opener, tmp_path: Path) -> None:
    with Store.open(tmp_path / "mine.sqlite") as store:
        store.put_all(entry(number) for number in range(4))
        assert push(store, opener(), name="team").entries == 4
        assert push(store, opener(), name="team").entries == 0
        store.put(entry(2, measurements=(measurement(machine=5),)))
        assert push(store, opener(), name="team").entries == 1
        assert push(store, opener(), name="team", everything=True).entries == 4
        assert len(opener().get(entry(2).id).measurements) == 2


def test_stores_that_push_and_pull_become_equal(opener: Opener, tmp_path: Path) -> None:
    exports = set()
    for number in range(2):
        with Store.open(tmp_path / f"{number}.sqlite") as store:
            store.put_all(entry(n, measurements=(measurement(machine=number),)) for n in range(number, number + 3))
            push(store, opener(), name="team")
    for number in range(2):
        with Store.open(tmp_path / f"{number}.sqlite") as store:
            pull(opener(), store, trust=Trust())
            write_lines(tmp_path / "out.jsonl", store)
            exports.add((tmp_path / "out.jsonl").read_bytes())
    assert len(exports) == 1
    assert exports.pop().count(b"\n") == 4


def test_an_answer_with_another_id_is_refused() -> None:
    with pytest.raises(EntryError, match="asked for"):
        read_as(entry(1).id, entry(2).text)


@pytest.mark.parametrize(
    "address",
    [
        "ftp://host/x",
        "",
        "-oProxyCommand=x",
        "https://ada:secret@host/x",
        "git+https://ada:secret@host/x",
        "a\nb",
        "ext::sh -c x",
    ],
)
def test_an_address_that_makes_no_sense_is_refused(address: str) -> None:
    if address == "ext::sh -c x":  # a strange name for a folder, and nothing but that
        assert normal_address(address).startswith("file:///")
        return
    with pytest.raises(AddressError) as caught:
        normal_address(address)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    ["http:///x", "https://host:99999/x", "https://host/x?y=1", "http://example.org/x", "s3+https://host/"],
)
def test_a_remote_that_cannot_be_is_refused_before_anything_is_sent(address: str) -> None:
    with pytest.raises(AddressError):
        open_remote(address, Access(token="t", key_id="k", secret_key="s"))


def test_secrets_are_not_in_what_is_printed_of_an_access() -> None:
    shown = repr(Access(token="t-secret", key_id="k", secret_key="s-secret", session_token="x-secret"))
    assert "secret'" not in shown
    assert "-secret" not in shown


@pytest.mark.parametrize("address", ["http://[::1", "http://[zz]/", "git+https://[", "https://ada:secret@[::1"])
def test_a_host_that_cannot_be_read_is_no_address(address: str) -> None:
    with pytest.raises(AddressError, match="is no address") as caught:
        normal_address(address)
    assert "secret" not in str(caught.value)


def test_a_folder_has_one_address_however_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert normal_address("team") == normal_address("./team/") == (tmp_path / "team").as_uri()


@pytest.mark.parametrize("name", ["x.json", "../" + "0" * 61 + ".json", "0" * 64, "0" * 64 + ".json.json", ""])
def test_other_files_are_no_entries(name: str) -> None:
    assert id_of_name(name) is None


@pytest.mark.parametrize("begin", ["", "https://host/", "git@host:"])
def test_an_address_that_is_too_long_to_be_remembered_is_refused(begin: str) -> None:
    with pytest.raises(AddressError, match="no address") as caught:
        normal_address(begin + "b" * 5000)
    assert "at most 1000" in caught.value.why
