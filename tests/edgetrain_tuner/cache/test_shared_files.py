"""Folders and git repositories that others write to, not all of them with good intentions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgetrain_tuner.cache.entry import merge
from edgetrain_tuner.cache.errors import AddressError, EntryError, UnreachableError
from edgetrain_tuner.cache.remotes.folder import FolderRemote
from edgetrain_tuner.cache.remotes.git import GitRemote
from edgetrain_tuner.cache.remotes.remote import Access
from edgetrain_tuner.cache.store import Store
from edgetrain_tuner.cache.sync import pull
from edgetrain_tuner.cache.trust import Trust
from tests.edgetrain_tuner.cache.conftest import git
from tests.edgetrain_tuner.cache.entries import entry, measurement


def place_of(folder: Path, number: int) -> Path:
    id_ = entry(number).id
    (folder / id_[:2]).mkdir(exist_ok=True)
    return folder / id_[:2] / f"{id_}.json"


def test_links_pipes_and_folders_in_place_of_entries_are_refused(tmp_path: Path) -> None:
    (tmp_path / "private").write_text(entry(1).text)
    shared = tmp_path / "shared"
    shared.mkdir()
    place_of(shared, 1).symlink_to(tmp_path / "private")
    os.mkfifo(place_of(shared, 2))
    place_of(shared, 3).mkdir()
    place_of(shared, 4).write_bytes(b"x" * 10_000_000)
    place_of(shared, 5).write_text(entry(6).text)
    FolderRemote(shared).put(entry(7))
    (shared / "README.md").write_text("ours")
    with Store.open(tmp_path / "mine.sqlite") as store:
        transfer = pull(FolderRemote(shared), store, trust=Trust())
        assert {refused.id for refused in transfer.refused} == {entry(number).id for number in range(1, 6)}
        assert [e.id for e in store] == [entry(7).id]


def test_what_is_damaged_in_a_folder_is_replaced_by_a_push(tmp_path: Path) -> None:
    place_of(tmp_path, 1).write_text(entry(1).text[:50])
    FolderRemote(tmp_path).put(entry(1))
    assert FolderRemote(tmp_path).get(entry(1).id) == entry(1)


def test_a_folder_that_is_not_there_is_made_by_a_push_and_not_by_a_pull(tmp_path: Path) -> None:
    with pytest.raises(AddressError):
        FolderRemote(tmp_path / "new").changes("")
    FolderRemote(tmp_path / "new").put(entry())
    assert len(FolderRemote(tmp_path / "new").changes("").listed) == 1
    with pytest.raises(AddressError):
        FolderRemote(tmp_path / "no" / "such").put(entry())


@pytest.fixture
def team(tmp_path: Path) -> Path:
    git("init", "--bare", "--initial-branch=main", "team.git", folder=tmp_path)
    return tmp_path / "team.git"


def remote(team: Path, person: str, **environment: str) -> GitRemote:
    access = Access(clone_folder=team.parent / f"{person}.git", environment={**os.environ, **environment})
    return GitRemote(f"file://{team}", access)


def test_a_push_between_our_fetch_and_our_push_is_joined(team: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The race, step by step: Bob's push lands after Ada has fetched."""
    ada, bob = remote(team, "ada"), remote(team, "bob")
    mine, theirs = (entry(measurements=(measurement(machine=machine),)) for machine in (1, 2))
    ada.put(mine)
    bob.put(theirs)
    joined = ada._joined
    calls = []

    def slow() -> object:
        files = joined()
        calls.append(files)
        if len(calls) == 1:
            bob.finish()
        return files

    monkeypatch.setattr(ada, "_joined", slow)
    ada.finish()
    assert len(calls) == 2
    assert remote(team, "eve").get(mine.id) == merge(mine, theirs)
    assert git("rev-list", "--count", "main", folder=team).strip() == "2"
    assert git("log", "-1", "--format=%s", "main", folder=team).strip() == "1 schedules"


def test_files_of_others_in_the_repository_stay_and_history_goes_on(team: Path, tmp_path: Path) -> None:
    git("clone", "-q", team, "work", folder=tmp_path)
    (tmp_path / "work" / "README.md").write_text("our schedules\n")
    git("add", "-A", folder=tmp_path / "work")
    git("commit", "-qm", "readme", folder=tmp_path / "work")
    git("push", "-q", "origin", "HEAD:main", folder=tmp_path / "work")
    ada = remote(team, "ada")
    ada.put(entry())
    ada.finish()
    assert git("ls-tree", "-r", "--name-only", "main", folder=team).split() == sorted(
        ["README.md", f"{entry().id[:2]}/{entry().id}.json"]
    )
    assert git("rev-list", "--count", "main", folder=team).strip() == "2"


def test_what_does_not_change_makes_no_commit(team: Path) -> None:
    for person in ("ada", "bob"):
        one = remote(team, person)
        one.put(entry())
        one.finish()
    assert git("rev-list", "--count", "main", folder=team).strip() == "1"


def test_links_and_long_files_in_a_repository_reach_nothing(team: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    git("clone", "-q", team, "work", folder=tmp_path)
    (tmp_path / "private").write_text(entry(1).text)
    place_of(work, 1).symlink_to(tmp_path / "private")
    place_of(work, 2).write_bytes(b"x" * 100_000)
    place_of(work, 3).write_text(entry(3).text)
    git("add", "-A", folder=work)
    git("commit", "-qm", "trap", folder=work)
    git("push", "-q", "origin", "HEAD:main", folder=work)
    with Store.open(tmp_path / "mine.sqlite") as store:
        transfer = pull(remote(team, "ada"), store, trust=Trust())
        assert [refused.id for refused in transfer.refused] == [entry(2).id]
        assert [e.id for e in store] == [entry(3).id]
    with pytest.raises(EntryError, match="longer"):
        remote(team, "ada").get(entry(2).id)


def test_a_person_without_a_name_can_push(team: Path, tmp_path: Path) -> None:
    nobody = {"HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "EMAIL": ""}
    one = remote(team, "ada", **nobody, GIT_DIR=str(tmp_path / "elsewhere"))
    one.put(entry())
    one.finish()
    assert remote(team, "bob").get(entry().id) == entry()


def test_a_server_that_says_no_is_not_asked_again_and_again(team: Path, tmp_path: Path) -> None:
    git("config", "core.bare", "false", folder=team)  # git refuses to move the branch that somebody works on
    one = remote(team, "ada", GIT_TRACE=str(tmp_path / "trace"))
    one.put(entry())
    with pytest.raises(AddressError, match="refused"):
        one.finish()
    assert (tmp_path / "trace").read_text().count("built-in: git push") == 1


HOOKS = ("pre-receive", "update", "post-receive", "post-update", "reference-transaction", "proc-receive")


def test_the_hooks_of_a_repository_are_not_run(team: Path, tmp_path: Path) -> None:
    (team / "hooks").mkdir(exist_ok=True)
    for name in HOOKS:
        (team / "hooks" / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran-{name}\n")
        (team / "hooks" / name).chmod(0o755)
    git("config", "uploadpack.packObjectsHook", f"touch {tmp_path}/ran-pack; git pack-objects", folder=team)
    one = remote(team, "ada")
    one.put(entry())
    one.finish()
    assert remote(team, "bob").get(entry().id) == entry()
    assert not list(tmp_path.glob("ran-*"))


def test_commands_that_a_repository_sets_are_not_run(team: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.git"
    git("clone", "-q", "--bare", team, other, folder=tmp_path)
    (team / "objects" / "info" / "alternates").write_text(f"{other}/objects\n")
    git("config", "core.alternateRefsCommand", f"touch {tmp_path}/ran-alternates; true", folder=team)
    one = remote(team, "ada")
    one.put(entry())
    one.finish()
    assert remote(team, "bob").get(entry().id) == entry()
    assert not list(tmp_path.glob("ran-*"))


def test_checked_out_files_are_not_updated_by_what_a_repository_sets(team: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    git("clone", "-q", team, work, folder=tmp_path)
    (work / "file").write_text("content")
    (work / ".gitattributes").write_text("* filter=x\n")
    git("add", "-A", folder=work)
    git("commit", "-qm", "first", folder=work)
    git("config", "receive.denyCurrentBranch", "updateInstead", folder=work)
    git("config", "core.fsmonitor", f"touch {tmp_path}/ran-monitor; true", folder=work)
    for way in ("clean", "smudge"):
        git("config", f"filter.x.{way}", f"touch {tmp_path}/ran-{way}; cat", folder=work)
    one = remote(work, "ada")
    one.put(entry())
    with pytest.raises(AddressError, match="refused"):
        one.finish()
    assert not list(tmp_path.glob("ran-*"))


def test_a_repository_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(AddressError, match="no git repository"):
        remote(tmp_path / "nothing.git", "ada").changes("")
    assert not (tmp_path / "ada.git").exists()


def test_a_clone_that_was_cut_off_is_made_again(team: Path, tmp_path: Path) -> None:
    (tmp_path / "ada.git.new" / "objects").mkdir(parents=True)
    assert remote(team, "ada").changes("").listed == ()


def test_without_git_the_address_cannot_be_used(team: Path, tmp_path: Path) -> None:
    access = Access(clone_folder=tmp_path / "x.git", environment={"PATH": str(tmp_path)})
    with pytest.raises(AddressError, match="no `git`"):
        GitRemote(f"file://{team}", access).changes("")


def test_a_git_that_hangs_is_given_up(team: Path, tmp_path: Path) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "git").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    access = Access(clone_folder=tmp_path / "x.git", environment=environment, timeout_s=0.01)
    with pytest.raises(UnreachableError, match="did not answer"):
        GitRemote(f"file://{team}", access).changes("")
