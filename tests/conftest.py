"""Fixtures that the whole suite shares. One build cache, so that each program is compiled once."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgetrain.program.cache import BuildCache


@pytest.fixture(scope="session")
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory to pass as XDG_CACHE_HOME to command-line tests; `build_cache` lies where they look."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def build_cache(cache_home: Path) -> BuildCache:
    return BuildCache(cache_home / "edgetrain" / "builds")
