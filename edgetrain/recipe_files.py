"""Recipe files: found by name or path, read from TOML, one on top of another where a file says `extends`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgetrain.errors import UsageError
from edgetrain.files.regular_file import require_regular
from edgetrain.files.texts import parse_toml
from edgetrain.locate import data_path
from edgetrain.schema import close_to

EXTENDS = "extends"
_ENDING = ".toml"
_FILE = "file:"  # before the path in `security.key`
# Where a recipe holds paths. What has a colon names a place, not a path.
_PATHS = (("model", "source"), ("data", "source"), ("data", "text", "vocabulary"), ("train", "loss_graph"))


def list_recipes() -> tuple[str, ...]:
    """The names of the recipes that come with edgetrain, sorted."""
    return tuple(sorted(path.stem for path in data_path("recipes").glob(f"*{_ENDING}")))


def find_recipe(name_or_path: str | Path) -> Path:
    """The recipe's file. A text with a `/` or that ends in `.toml` is a path, anything else a name."""
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or "/" in text or text.endswith(_ENDING):
        require_regular(Path(text), UsageError)
        if not Path(text).is_file():
            raise UsageError(
                f"there is no recipe file {text}", fix="check the path, or use a name from `edgetrain recipes`"
            )
        return Path(text)
    known = list_recipes()
    if text not in known:
        raise UsageError(
            f"there is no recipe `{text}`{close_to(text, known)}",
            why=f"the recipes are {', '.join(known)}",
            fix="use one of them, or the path of a .toml file",
        )
    return data_path("recipes", f"{text}{_ENDING}")


def read_recipe_file(path: Path) -> dict[str, Any]:
    """What the file says, on top of the recipe that it extends, if it extends one; paths count from their own file.

    Tables are joined key by key; a list or a value replaces the one below. `expect` is not inherited: it is what that
    recipe reaches, not this one. Raises `UsageError` for a file that is no TOML, extends what is not there, or itself.
    """
    return _read(path, above=())


def resolve_paths(data: dict[str, Any], folder: Path) -> None:
    """Makes relative paths count from `folder`."""
    for *tables, key in _PATHS:
        table: Any = data
        for name in tables:
            table = table.get(name) if isinstance(table, dict) else None
        path = table.get(key) if isinstance(table, dict) else None
        if isinstance(path, str) and path and ":" not in path:
            table[key] = str(folder / Path(path).expanduser())
    security: Any = data.get("security")
    key_place = security.get("key") if isinstance(security, dict) else None
    if isinstance(key_place, str) and key_place.startswith(_FILE) and key_place != _FILE:
        security["key"] = _FILE + str(folder / Path(key_place.removeprefix(_FILE)).expanduser())


def _read(path: Path, *, above: tuple[Path, ...]) -> dict[str, Any]:
    """`above`: the files that extend this one, the last one directly."""
    if path.resolve() in above:
        chain = " extends ".join(file.name for file in (*above, path))
        raise UsageError(f"recipe {path} extends itself", why=chain, fix="leave `extends` out of one of these files")
    try:
        data = parse_toml(path.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError) as error:
        raise UsageError(f"recipe {path} is not valid TOML", why=str(error)) from error
    resolve_paths(data, path.parent)
    data.setdefault("name", path.stem)
    if EXTENDS not in data:
        return data
    below = _read(_extended(data.pop(EXTENDS), path), above=(*above, path.resolve()))
    below.pop("expect", None)
    return _joined(below, data)


def _extended(given: object, path: Path) -> Path:
    """The file that `path` extends: a name, or a path that counts from its folder."""
    if not isinstance(given, str):
        raise UsageError(f"`extends` in recipe {path} is `{given}`, expected a recipe's name or path")
    if "/" not in given and not given.endswith(_ENDING):
        return find_recipe(given)
    return find_recipe(path.parent / Path(given).expanduser())


def _joined(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    joined = dict(below)
    for key, value in above.items():
        inner = below.get(key)
        joined[key] = _joined(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return joined
