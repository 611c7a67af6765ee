"""What every test may use: one build cache for the whole session, so that a model is compiled once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import hypothesis
import pytest

import edgetrain
from edgetrain.files.build_cache import BuildCache

_CHECKOUT = Path(edgetrain.__file__).resolve().parents[1]


def pytest_configure() -> None:
    """Hypothesis gives an example 200 ms unless told otherwise, an assertion about time: busy machines break it."""
    hypothesis.settings.register_profile("edgetrain", deadline=None)
    hypothesis.settings.load_profile("edgetrain")


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever compiles is slow: one marker decides what is left out in between."""
    for item in items:
        if item.get_closest_marker("compile"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """A shell starts background jobs with Ctrl-C ignored, and children inherit that: here it must mean something."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def nothing_kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the developer has calibrated or tuned must not decide what a test sees, nor what ships for some machines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGETRAIN_SCHEDULE_SEED", "off")
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("own-cache")))
        yield


@pytest.fixture(scope="session")
def session_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all processes of a session: what `pytest -n` has built in one, the others find."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def cache_home(session_folder: Path) -> Path:
    """The value of `XDG_CACHE_HOME` for commands under test; `build_cache` lies where they look."""
    home = session_folder / "cache"
    home.mkdir(exist_ok=True)
    return home


@pytest.fixture(scope="session")
def build_cache(cache_home: Path) -> BuildCache:
    """The build cache of commands and in-process tests alike."""
    return BuildCache(cache_home / "edgetrain" / "builds")


@pytest.fixture(scope="session")
def command_environment(cache_home: Path) -> Mapping[str, str]:
    """The environment of a command under test: this checkout, the session's cache, no terminal."""
    paths = [str(_CHECKOUT), str(_CHECKOUT / "tuner"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "XDG_CACHE_HOME": str(cache_home), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
