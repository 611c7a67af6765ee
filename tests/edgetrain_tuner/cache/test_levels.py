"""User, team and seed: one union, in that order."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from edgetrain_tuner.cache.entry import merge
from edgetrain_tuner.cache.levels import IMPORTED, SEED, SEED_FOLDER, TEAM, USER, Levels, Seed, imported_path
from edgetrain_tuner.cache.store import Store
from edgetrain_tuner.cache.teams import Team, remembered_teams
from tests.edgetrain_tuner.cache.entries import BOARD, HOST, entry, hash_of, measurement


@pytest.fixture
def levels(tmp_path: Path) -> Levels:
    """One entry that all have with a measurement each, and one of each level's own."""
    team = Team(url="https://cache.example.org/team", folder=tmp_path / "teams")
    team.remember()
    with Store.open(tmp_path / "user.sqlite") as store:
        store.put_all([entry(0, measurements=(measurement(machine=1),)), entry(1)])
    with Store.open(team.store_path) as store:
        store.put_all([entry(0, measurements=(measurement(machine=2),)), entry(2)])
    (tmp_path / "seed").mkdir()
    seeds = [entry(0, measurements=(measurement(machine=3),)), entry(3), entry(4, target=BOARD)]
    (tmp_path / "seed" / "a.jsonl").write_text("".join(e.text + "\n" for e in seeds) + '{"half": ')
    return Levels.open(
        user_path=tmp_path / "user.sqlite", teams_folder=tmp_path / "teams", seed_folder=tmp_path / "seed"
    )


def test_a_lookup_is_the_union_with_everything_that_is_known(levels: Levels) -> None:
    found = levels.lookup(hash_of(1), HOST)
    assert [one.level for one in found] == [USER, USER, TEAM, SEED]
    (shared,) = (one for one in found if one.entry.id == entry(0).id)
    assert {int(m.machine, 16) for m in shared.entry.measurements} == {1, 2, 3}
    assert {one.source for one in found if one.level == TEAM} == {"https://cache.example.org/team"}


def test_a_nearer_target_comes_before_a_nearer_level(levels: Levels) -> None:
    far = dataclasses.replace(HOST, cpu="skylake", vector_bits=512)
    levels.user.put(entry(9, target=far))
    assert levels.lookup(hash_of(1), HOST)[-1].entry == entry(9, target=far)
    assert levels.lookup(hash_of(1), far)[0].entry == entry(9, target=far)


def test_another_instruction_set_is_looked_up_apart(levels: Levels) -> None:
    assert [one.entry for one in levels.lookup(hash_of(1), BOARD)] == [entry(4, target=BOARD)]
    assert len(levels.by_family(hash_of(2))) == 5


def test_one_entry_is_found_wherever_it_is(levels: Levels) -> None:
    for number, level in ((1, USER), (2, TEAM), (3, SEED)):
        found = levels.get(entry(number).id)
        assert found is not None
        assert found.level == level
    assert levels.get(hash_of(0)) is None
    ids = [one.entry.id for one in levels]
    assert ids == sorted(ids)
    assert len(ids) == 5


def test_what_is_put_goes_to_the_user(levels: Levels, tmp_path: Path) -> None:
    levels.user.put(entry(7))
    levels.close()
    with Store.open(tmp_path / "user.sqlite") as store:
        assert store.get(entry(7).id) == entry(7)


def test_a_team_store_that_cannot_be_opened_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    team = Team(url="https://cache.example.org/team", folder=tmp_path / "teams")
    team.remember()
    team.store_path.mkdir()
    with Levels.open(user_path=tmp_path / "user.sqlite", teams_folder=tmp_path / "teams") as opened:
        assert TEAM not in {level.name for level in opened.levels}
    assert "left out" in caplog.text


def test_a_bad_line_of_a_seed_is_told_and_the_rest_is_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.jsonl").write_text(f"{entry(1).text}\n{{}}\n")
    (tmp_path / "b.jsonl").write_text(f"{entry(1, measurements=(measurement(machine=2),)).text}\n")
    seed = Seed.read(tmp_path)
    assert list(seed) == [merge(entry(1), entry(1, measurements=(measurement(machine=2),)))]
    assert "a.jsonl, line 2 is passed over" in caplog.text


def test_the_seed_that_ships_has_no_bad_line(caplog: pytest.LogCaptureFixture) -> None:
    assert SEED_FOLDER.is_dir()
    list(Seed.read(SEED_FOLDER))
    assert caplog.text == ""


def test_teams_are_remembered_and_forgotten(tmp_path: Path) -> None:
    one = Team(url="https://b.example.org", folder=tmp_path, token_file="/home/ada/token", require_signature=True)
    two = Team(url="https://a.example.org", folder=tmp_path)
    one.remember()
    two.remember()
    assert remembered_teams(tmp_path) == (two, one)
    Store.open(one.store_path).close()
    one.clone_path.mkdir()
    assert one.forget()
    assert not one.forget()
    assert remembered_teams(tmp_path) == (two,)
    assert {path.stem for path in tmp_path.iterdir()} == {two.name}


def test_the_file_of_a_team_that_cannot_be_read_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "b.json").write_text('{"format": "edgetrain.remote/1", "url": 3}')
    assert remembered_teams(tmp_path) == ()
    assert "a.json is passed over" in caplog.text
    assert "`url`" in caplog.text
    assert remembered_teams(tmp_path / "nowhere") == ()


def test_what_came_in_a_file_is_no_word_of_this_machine(tmp_path: Path) -> None:
    user_path = tmp_path / "user.sqlite"
    with Store.open(imported_path(user_path)) as store:
        store.put(entry(0, measurements=(measurement(machine=1),)))
    with Levels.open(user_path=user_path, teams_folder=tmp_path / "teams", seed_folder=None) as opened:
        (found,) = opened.lookup(hash_of(1), HOST)
    assert (found.level, found.own) == (IMPORTED, None)
