"""Whatever a run, a checkpoint, a cache or a report leaves on the disk goes through `edgetrain_tuner.disk`.

Only so does a walk over its calls cover everything. Files of another kind, and temporary ones whose folder goes in any
case, are listed below with what they are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import edgetrain
import edgetrain_tuner
from edgetrain_tuner import disk

_ROOTS = (Path(edgetrain.__file__).parent, Path(edgetrain_tuner.__file__).parent)

# Calls that change a disk, by the module that has them, and methods of paths by their names alone.
_OF_MODULES: Mapping[str, tuple[str, ...]] = {
    "os": (
        *("open", "fdopen", "replace", "rename", "renames", "remove", "unlink", "rmdir", "removedirs", "mkdir"),
        *("makedirs", "fsync", "fdatasync", "link", "symlink", "truncate", "ftruncate", "utime", "chmod", "fchmod"),
    ),
    "shutil": ("rmtree", "move", "copy", "copy2", "copyfile", "copyfileobj", "copytree", "copymode", "copystat"),
    "tempfile": ("mkdtemp", "mkstemp", "TemporaryFile", "NamedTemporaryFile", "TemporaryDirectory"),
    "fcntl": ("flock", "lockf"),
    "sqlite3": ("connect",),
}
_OF_PATHS = (
    *("write_text", "write_bytes", "unlink", "rmdir", "mkdir", "touch", "symlink_to", "hardlink_to", "chmod"),
    "lchmod",
)
_WRITING = frozenset("wax+")

# What these write is no part of a run, a checkpoint, a cache or a report, or lies in a folder that goes in any case.
_OTHERS: Mapping[str, str] = {
    "edgetrain/cli/cache_clean.py": "removes what the user asks to remove",
    "edgetrain/cli/doctor.py": "a switch of the kernel's",
    "edgetrain/cli/entry.py": "standard output",
    "edgetrain/api/models.py": "a model in the cache of downloads, removed where it is damaged",
    "edgetrain/compiler/client.py": "a file in memory",
    "edgetrain/compiler/compile.py": "inside an entry of the cache that has no place yet",
    "edgetrain/compiler/measure/": "temporary",
    "edgetrain/compiler/process.py": "inside an entry of the cache that has no place yet",
    "edgetrain/compiler/schedules.py": "inside an entry of the cache that has no place yet; a folder of stores",
    "edgetrain/compiler/search/trials.py": "inside an entry of the cache that has no place yet",
    "edgetrain/files/texts.py": "reads",
    "edgetrain/pipeline/stages.py": "--dump, for people",
    "edgetrain/program/build.py": "inside an entry of the cache that has no place yet",
    "edgetrain/program/library.py": "temporary, and inside an entry of the cache that has no place yet",
    "edgetrain/run/engines/": "a file without a name; what pages",
    "edgetrain/run/limits/broker.py": "claims of jobs that live, gone with them",
    "edgetrain/run/limits/exchange.py": "locks of a folder that is there",
    "edgetrain/run/sensors/": "a probe without a name; switches of the kernel's",
    "edgetrain/toolchain/": "temporary, and inside an entry of the cache that has no place yet",
    "edgetrain_tuner/cache/remotes/folder.py": "reads",
    "edgetrain_tuner/cache/remotes/git_clone.py": "what git makes",
    "edgetrain_tuner/cache/database.py": "reads what is left of a damaged store",
    "edgetrain_tuner/disk.py": "the one way",
}
# Reading and locking for reading, in modules that otherwise keep to the one way.
_READS: Mapping[str, frozenset[str]] = {
    "edgetrain/files/build_cache.py": frozenset({"os.open"}),
    "edgetrain/files/scratch.py": frozenset({"os.open"}),
    "edgetrain/run/files/protected.py": frozenset({"os.open", "os.fdopen"}),
}


def _own_ways(source: str) -> Iterator[tuple[int, str]]:
    """Each call that changes a disk: its line and its name."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if name in _OF_MODULES.get(module, ()):
                yield node.lineno, f"{module}.{name}"
            case ast.Attribute(value=value, attr=name) if name in _OF_PATHS and not _is_disk(value):
                yield node.lineno, name
            case ast.Attribute(attr=("replace" | "rename") as name) if _is_a_move(node):
                yield node.lineno, name
            case ast.Attribute(attr="open") | ast.Name(id="open") if _writes(node):
                yield node.lineno, "open"


def _is_disk(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id == "disk"


def _is_a_move(call: ast.Call) -> bool:
    """`path.replace(target)` has one value, `text.replace(old, new)` two, `dataclasses.replace(x, y=1)` names."""
    assert isinstance(call.func, ast.Attribute)
    return len(call.args) == 1 and not call.keywords and not _is_disk(call.func.value)


def _writes(call: ast.Call) -> bool:
    """An `open` with a mode for writing: the first value of a path's, the second of the function's."""
    modes = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    texts = (mode.value for mode in modes if isinstance(mode, ast.Constant) and isinstance(mode.value, str))
    return any(0 < len(text) <= 3 and set(text) & _WRITING for text in texts)


def _modules() -> Iterator[tuple[str, Path]]:
    for root in _ROOTS:
        for path in sorted(root.rglob("*.py")):
            yield f"{root.name}/{path.relative_to(root).as_posix()}", path


def test_only_the_disk_module_changes_files_of_runs_and_caches() -> None:
    wrong = []
    for name, path in _modules():
        if any(name.startswith(other) for other in _OTHERS):
            continue
        found = _own_ways(path.read_text(encoding="utf-8"))
        wrong += [f"{name}:{line}: {call}" for line, call in found if call not in _READS.get(name, ())]
    assert not wrong, "go through `edgetrain_tuner.disk`, or say in `_OTHERS` what the file is: " + ", ".join(wrong)


def test_what_is_listed_is_still_there() -> None:
    names = [name for name, _ in _modules()]
    assert [other for other in (*_OTHERS, *_READS) if not any(name.startswith(other) for name in names)] == []
    idle = [
        other
        for other in _OTHERS
        if not any(
            list(_own_ways(path.read_text(encoding="utf-8"))) for name, path in _modules() if name.startswith(other)
        )
    ]
    assert idle == []


@pytest.mark.parametrize(
    "line",
    [
        "os.replace(a, b)",
        "a.replace(b)",
        "os.fsync(1)",
        "path.write_text('')",
        "path.open('wb')",
        "open(path, 'a')",
        "open(path, mode='r+')",
        "path.unlink()",
        "shutil.rmtree(path)",
        "sqlite3.connect(path)",
    ],
)
def test_a_way_around_is_seen(line: str) -> None:
    assert list(_own_ways(line))


@pytest.mark.parametrize(
    "line", ["a.replace('x', 'y')", "replace(a, b=1)", "path.open('rb')", "open(path)", "disk.rename(a, b)"]
)
def test_what_changes_no_file_is_not_seen(line: str) -> None:
    assert not list(_own_ways(line))


def test_nothing_of_the_disk_module_can_be_changed_but_by_a_test() -> None:
    """It holds functions and nothing else: no state, no switch."""
    for name, value in vars(disk).items():
        assert name.startswith("__") or callable(value) or type(value).__name__ in ("module", "_Feature"), name
