"""What every test may use: one build cache for the whole session, so that a model is compiled once."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import hypothesis
import pytest

import edgetrain
from edgetrain.errors import EdgetrainError
from edgetrain.files.build_cache import BuildCache
from tests.compiler_here import compile_here
from tests.hints import problems

_CHECKOUT = Path(edgetrain.__file__).resolve().parents[1]


def pytest_configure(config: pytest.Config) -> None:
    if config.args_source is not pytest.Config.ArgsSource.ARGS and not config.option.markexpr:
        config.option.markexpr = "not slow"  # `pytest` alone is the tier for in between, `pytest tests` is everything
    # Hypothesis gives an example 200 ms unless told otherwise, an assertion about time: busy machines break it.
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
def nothing_kept(tmp_path_factory: pytest.TempPathFactory, session_folder: Path) -> Iterator[None]:
    """What the developer has calibrated or tuned must not decide what a test sees, nor what ships for some machines."""
    own_cache = tmp_path_factory.mktemp("own-cache")
    _share_zig(own_cache, session_folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGETRAIN_SCHEDULE_SEED", "off")
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.setenv("XDG_CACHE_HOME", str(own_cache))
        yield


def _share_zig(cache_home: Path, session_folder: Path) -> None:
    """One session builds zig's libraries once: that takes many seconds of each target."""
    (session_folder / "zig").mkdir(exist_ok=True)
    (cache_home / "edgetrain").mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (cache_home / "edgetrain" / "zig").symlink_to(session_folder / "zig")


@pytest.fixture(scope="session")
def fixes() -> Iterator[list[str]]:
    """The fix of every error that is made in this process, in order."""
    made: list[str] = []
    make = EdgetrainError.__init__

    def noted(error: EdgetrainError, what: str, *, why: str = "", fix: str = "") -> None:
        made.append(fix)
        make(error, what, why=why, fix=fix)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EdgetrainError, "__init__", noted)
        yield made


@pytest.fixture(autouse=True)
def hints_that_work(fixes: list[str]) -> Iterator[None]:
    """Whatever a test makes go wrong: what it is told to paste must not fail as well."""
    fixes.clear()
    yield
    wrong = [problem for fix in dict.fromkeys(fixes) for problem in problems(fix)]
    assert not wrong, "\n".join(wrong)


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
    _share_zig(home, session_folder)
    return home


@pytest.fixture(scope="session")
def build_cache(cache_home: Path) -> BuildCache:
    """The build cache of commands and in-process tests alike."""
    return BuildCache(cache_home / "edgetrain" / "builds")


@pytest.fixture
def compiler_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what comes before and after the compiler: it runs in their process, and TVM is imported once.

    That the compiler's own process gives the same bytes is a test in `edgetrain/agreement/test_bit_for_bit.py`.
    """
    for module in ("compile", "search.request", "search.try_entries"):
        monkeypatch.setattr(f"edgetrain.compiler.{module}.run_compiler", compile_here)


@pytest.fixture(scope="session")
def command_environment(cache_home: Path) -> Mapping[str, str]:
    """The environment of a command under test: this checkout, the session's cache, no terminal."""
    paths = [str(_CHECKOUT), str(_CHECKOUT / "tuner"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "XDG_CACHE_HOME": str(cache_home), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
