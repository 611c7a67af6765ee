"""`edgetrain cache clean`: gives back the disk that can be had back. Runs are not touched: they are the user's."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from edgetrain.cli.command import table
from edgetrain.cli.console import Console
from edgetrain.files.atomic_folder import move_aside
from edgetrain.locate import schedules_dir, shares_dir, user_cache_dir, zig_dir
from edgetrain.run.limits.broker import is_share_in_use
from edgetrain.units import show_bytes

_BUILDS = "builds"


def clean(arguments: argparse.Namespace, _: str, console: Console) -> int:
    """Removes, or with `--dry-run` names, what is made again when it is needed; with `--all` the schedules too."""
    folders = [folder for folder in _folders(everything=arguments.all) if folder.exists()]
    sizes = {str(folder): _size(folder) for folder in folders}
    if not arguments.dry_run:
        for folder in folders:
            _remove(folder)
        if arguments.all:
            with contextlib.suppress(OSError):  # there is something of a job that runs
                user_cache_dir().rmdir()
    total = sum(sizes.values())
    if console.as_json:
        console.data(json.dumps({"folders": sizes, "bytes": total, "dry_run": arguments.dry_run}) + "\n")
        return 0
    rows = [(show_bytes(size), folder) for folder, size in sizes.items()]
    verb = "would remove" if arguments.dry_run else "removed"
    console.data((table(rows, indent=0) + "\n" if rows else "") + f"{verb} {show_bytes(total)}\n")
    kept = schedules_dir()
    if not arguments.all and kept.exists():
        console.say(f"kept {show_bytes(_size(kept))} of schedules; `edgetrain cache clean --all` removes them too")
    return 0


def _folders(*, everything: bool) -> Iterator[Path]:
    yield user_cache_dir() / _BUILDS
    yield zig_dir()
    if everything:
        yield schedules_dir()
        if not is_share_in_use(shares_dir()):
            yield shares_dir()


def _size(folder: Path) -> int:
    """Links count for nothing: what they lead to is not ours."""
    if folder.is_symlink():
        return 0
    found = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # somebody else removed it
            found += path.lstat().st_size if path.is_file() and not path.is_symlink() else 0
    return found


def _remove(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
        return
    with contextlib.suppress(FileNotFoundError):
        move_aside(folder)  # whoever builds meanwhile finds either all of it or nothing
