"""Where edgetrain's own files are: the data it ships, the cache it may write, and what the user keeps.

The only module that reads the environment: everything else takes paths as arguments.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from edgetrain.errors import InternalError
from edgetrain.units import parse_bytes

_BUILDS_LIMIT_BYTES = 10_000_000_000
_PACKAGE = Path(__file__).resolve().parent

# A wheel carries `targets/` and `recipes/` inside the package; a checkout keeps them beside it, where people look.
_OUTSIDE_IN_A_CHECKOUT = frozenset({"targets", "recipes"})


def data_path(first: str, *parts: str, package: Path = _PACKAGE) -> Path:
    """The path of a file or folder that edgetrain ships: `data_path("targets", "jetson.toml")`.

    Only `first` is required to exist, so that the caller can say what it misses in its own words.
    Raises `InternalError` where it does not: the installation is incomplete.
    """
    roots = [package / "_data"]
    if first in _OUTSIDE_IN_A_CHECKOUT:
        roots.append(package.parent)
    for root in roots:
        if (root / first).exists():
            return root.joinpath(first, *parts)
    raise InternalError(
        f"the packaged data `{first}` is missing",
        why=f"looked in {', '.join(str(root) for root in roots)}",
        fix="install edgetrain again",
    )


def user_cache_dir(environment: Mapping[str, str] | None = None) -> Path:
    """The folder for files that can be made again: `$XDG_CACHE_HOME/edgetrain`, else `~/.cache/edgetrain`.

    It is not created here. A relative `XDG_CACHE_HOME` is ignored, as the XDG base directory specification asks.
    """
    base = Path((os.environ if environment is None else environment).get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "edgetrain"


def user_config_dir(environment: Mapping[str, str] | None = None) -> Path:
    """For what the user keeps: `$XDG_CONFIG_HOME/edgetrain`, else `~/.config/edgetrain`; not created here."""
    base = Path((os.environ if environment is None else environment).get("XDG_CONFIG_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".config") / "edgetrain"


def shares_dir(environment: Mapping[str, str] | None = None) -> Path:
    """Where jobs that share memory meet. Not in `$XDG_RUNTIME_DIR`, which a job under cron or sudo does not have:
    it would meet nobody."""
    return user_cache_dir(environment) / "shares"


def zig_dir(environment: Mapping[str, str] | None = None) -> Path:
    """Where zig keeps what it builds of its own libraries."""
    return user_cache_dir(environment) / "zig"


def schedules_dir(environment: Mapping[str, str] | None = None) -> Path:
    """Where the schedules are kept that this user found, and those that teams share."""
    return user_cache_dir(environment) / "schedules"


def schedules_path(environment: Mapping[str, str] | None = None) -> Path:
    """The store of the schedules that this user found."""
    return schedules_dir(environment) / "user.sqlite"


def builds_limit_bytes(environment: Mapping[str, str] | None = None) -> int:
    """What the build cache may take, as `EDGETRAIN_BUILDS_LIMIT` says: 10 GB without it.

    Raises `UsageError` for what is no size.
    """
    text = (os.environ if environment is None else environment).get("EDGETRAIN_BUILDS_LIMIT", "")
    return parse_bytes(text) if text else _BUILDS_LIMIT_BYTES


def served_path(environment: Mapping[str, str] | None = None) -> Path:
    """The store that `cache serve` serves: apart from the user's own, because others write to it."""
    return schedules_dir(environment) / "served.sqlite"


def teams_dir(environment: Mapping[str, str] | None = None) -> Path:
    """The remotes that schedules were pulled from, and what came from each."""
    return schedules_dir(environment) / "teams"


def uses_seed(environment: Mapping[str, str] | None = None) -> bool:
    """Whether schedules that came with edgetrain are used: not with `EDGETRAIN_SCHEDULE_SEED=off`."""
    return (os.environ if environment is None else environment).get("EDGETRAIN_SCHEDULE_SEED", "") != "off"


def uses_colour(*, is_terminal: bool, environment: Mapping[str, str] | None = None) -> bool:
    """Whether messages are coloured: on a terminal, unless `NO_COLOR` is set; elsewhere with `CLICOLOR_FORCE`.

    As https://no-color.org and https://bixense.com/clicolors have it. A terminal of type `dumb` shows none.
    """
    found = os.environ if environment is None else environment
    if found.get("NO_COLOR"):
        return False
    if found.get("CLICOLOR_FORCE", "0") not in ("", "0"):
        return True
    return is_terminal and found.get("CLICOLOR", "1") != "0" and found.get("TERM") != "dumb"


def is_completing(environment: Mapping[str, str] | None = None) -> bool:
    """Whether it is a shell that calls, to know what TAB could mean: see `edgetrain completion`."""
    return "_ARGCOMPLETE" in (os.environ if environment is None else environment)


def sharing_environment() -> Mapping[str, str]:
    """For `edgetrain cache` alone: git and S3 have their credentials in the environment, as everywhere else."""
    return dict(os.environ)


def environment_variable(name: str) -> str:
    """What the variable holds that a run's `security.key` names; empty where it is not set."""
    return os.environ.get(name, "")


def key_override(environment: Mapping[str, str] | None = None) -> str:
    """`EDGETRAIN_SECURITY_KEY`: where the key is on this machine, where that is not what the run's recipe says."""
    return (os.environ if environment is None else environment).get("EDGETRAIN_SECURITY_KEY", "")
