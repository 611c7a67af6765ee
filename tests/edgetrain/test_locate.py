"""Claims about where edgetrain finds its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgetrain.errors import InternalError
from edgetrain.locate import data_path, schedules_path, teams_dir, user_cache_dir, uses_seed


def test_a_checkout_has_its_profiles_beside_the_package(tmp_path: Path) -> None:
    (tmp_path / "edgetrain" / "_data").mkdir(parents=True)
    (tmp_path / "targets").mkdir()
    assert data_path("targets", "a.toml", package=tmp_path / "edgetrain") == tmp_path / "targets" / "a.toml"


def test_a_wheel_has_its_profiles_inside_the_package(tmp_path: Path) -> None:
    inside = tmp_path / "edgetrain" / "_data" / "targets"
    inside.mkdir(parents=True)
    (tmp_path / "targets").mkdir()  # someone else's folder in site-packages
    assert data_path("targets", package=tmp_path / "edgetrain") == inside


def test_other_files_are_never_taken_from_beside_the_package(tmp_path: Path) -> None:
    (tmp_path / "digits.npz").touch()
    with pytest.raises(InternalError, match=r"digits\.npz"):
        data_path("digits.npz", package=tmp_path / "edgetrain")


def test_everything_that_is_shipped_is_found() -> None:
    assert data_path("digits.npz").is_file()
    assert data_path("digits.LICENSE.md").is_file()
    assert data_path("targets", "host.toml").is_file()
    assert data_path("recipes", "digits.toml").is_file()


def test_the_cache_honours_an_absolute_xdg_cache_home() -> None:
    assert user_cache_dir({"XDG_CACHE_HOME": "/var/cache/me"}) == Path("/var/cache/me/edgetrain")


@pytest.mark.parametrize("environment", [{}, {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "relative"}])
def test_the_cache_is_in_the_home_folder_otherwise(environment: dict[str, str]) -> None:
    assert user_cache_dir(environment) == Path.home() / ".cache" / "edgetrain"


def test_schedules_lie_in_one_folder_of_the_cache() -> None:
    environment = {"XDG_CACHE_HOME": "/var/cache/me"}
    assert schedules_path(environment) == Path("/var/cache/me/edgetrain/schedules/user.sqlite")
    assert teams_dir(environment) == Path("/var/cache/me/edgetrain/schedules/teams")


@pytest.mark.parametrize(("value", "is_used"), [(None, True), ("", True), ("on", True), ("off", False)])
def test_the_seed_of_schedules_is_used_unless_switched_off(value: str | None, is_used: bool) -> None:
    environment = {} if value is None else {"EDGETRAIN_SCHEDULE_SEED": value}
    assert uses_seed(environment) is is_used
