"""The k-th time that memory is asked for, there is none, for every k: exit code 6, and nothing lost or left behind."""

from __future__ import annotations

import ctypes
import errno
import functools
import gc
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetrain.cli.failure import as_edgetrain_error
from edgetrain.dataset.load import load_dataset
from edgetrain.errors import DeviceError
from edgetrain.recipes import DataSection
from edgetrain.run.engines import arena_memory
from edgetrain.run.engines.arena_memory import ArenaMemory
from edgetrain.run.engines.stored_parameters import mapped_file
from tests.edgetrain.faults.test_run_faults import fit, state, stops
from tests.edgetrain.faults.walk import RecordProperty

_ALLOCATING = (
    *("array", "asarray", "ascontiguousarray", "concatenate", "empty", "empty_like", "frombuffer", "fromiter"),
    *("full", "memmap", "ones", "stack", "zeros", "zeros_like"),
)


class _Refusing:
    """A call of the C library that may fail."""

    def __init__(self, real: Any, refuse: Callable[[], bool], failure: Any) -> None:
        object.__setattr__(self, "real", real)
        self.real: Any
        self.refuse: Callable[[], bool]
        self.failure: Any
        object.__setattr__(self, "refuse", refuse)
        object.__setattr__(self, "failure", failure)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.real, name, value)  # the types of what it takes and gives

    def __call__(self, *values: Any) -> Any:
        if self.refuse():
            ctypes.set_errno(errno.ENOMEM)
            return self.failure
        return self.real(*values)


class _FaultyLibrary:
    """The C library, whose k-th call for memory finds none."""

    def __init__(self, at: int) -> None:
        self.calls = 0
        self._at = at
        real = ctypes.CDLL(None, use_errno=True)
        self.munmap = real.munmap
        self.mmap = _Refusing(real.mmap, self._is_due, ctypes.c_void_p(-1).value)
        self.mprotect = _Refusing(real.mprotect, self._is_due, -1)
        self.madvise = _Refusing(real.madvise, self._is_due, -1)

    def _is_due(self) -> bool:
        self.calls += 1
        return self.calls == self._at


def _raised(act: Callable[[], object]) -> Exception | None:
    try:
        act()
    except Exception as error:
        return error
    return None


def use_arena() -> None:
    arena = ArenaMemory(3 << 20, reserve_bytes=5 << 20)
    arena.view[0] = 1
    arena.resize(4 << 20)
    arena.resize(1 << 20)
    arena.give_back(4096)
    assert arena.view[0] == 1


def mappings() -> int:
    gc.collect()
    return sum(int(end, 16) - int(start, 16) for start, end in _ranges() if int(end, 16) - int(start, 16) >= 3 << 20)


def _ranges() -> Iterator[tuple[str, str]]:
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.split(None, 5)[5:] == []:
            start, _, end = line.split()[0].partition("-")
            yield start, end


def test_no_memory_for_the_arena_is_a_device_error_and_leaves_no_mapping(
    monkeypatch: pytest.MonkeyPatch, record_property: RecordProperty
) -> None:
    use_arena()
    points = 0
    for at in range(1, 50):
        before = mappings()
        library = _FaultyLibrary(at)
        with monkeypatch.context() as patch:
            patch.setattr(arena_memory, "_libc", lambda library=library: library)
            refused = _raised(use_arena)
            assert refused is None or isinstance(refused, DeviceError), f"call {at}: {refused!r}"
            del refused  # its traceback holds the arena
        if library.calls < at:
            break
        points += 1
        assert mappings() <= before
    assert points >= 5
    record_property("fault_points", points)
    record_property("recovered", points)


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.ENOSPC, errno.EMFILE])
def test_no_memory_for_the_copy_of_the_parameters_is_a_device_error(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(mmap, "mmap", refuse)
        with pytest.raises(DeviceError, match="no room"):
            mapped_file(tmp_path, 1 << 16)
    assert list(tmp_path.iterdir()) == []
    mapped_file(tmp_path, 1 << 16).close()


class _FaultyArrays:
    """NumPy, whose k-th array finds no memory."""

    def __init__(self, at: int) -> None:
        self.calls = 0
        self._at = at

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        for name in _ALLOCATING:
            patch.setattr(np, name, self._counted(getattr(np, name)))

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*values: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls == self._at:
                raise MemoryError("Unable to allocate an array")
            return real(*values, **options)

        return call


def write_csv(folder: Path) -> DataSection:
    rows = "".join(f"{i},{i * 0.5},{'cat' if i % 2 else 'dog'}\n" for i in range(40))
    (folder / "data.csv").write_text("a,b,label\n" + rows)
    return DataSection(source=str(folder / "data.csv"))


def write_npz(folder: Path) -> DataSection:
    features = np.arange(120, dtype=np.float32).reshape(40, 3)
    np.savez(folder / "data.npz", x_train=features, y_train=np.arange(40) % 2)
    return DataSection(source=str(folder / "data.npz"))


@pytest.mark.parametrize("write", [write_csv, write_npz], ids=["csv", "npz"])
def test_no_memory_for_the_data_is_not_said_to_be_a_mistake_in_it(
    write: Callable[[Path], DataSection],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: RecordProperty,
) -> None:
    data = write(tmp_path)
    expected = len(load_dataset(data).train.features)
    points = 0
    for at in range(1, 2000):
        arrays = _FaultyArrays(at)
        with monkeypatch.context() as patch:
            arrays.patch(patch)
            refused = _raised(lambda: load_dataset(data))
            assert refused is None or "out of memory" in as_edgetrain_error(refused).what, f"array {at}: {refused!r}"
        if arrays.calls < at:
            break
        points += 1
    assert points > 0
    assert len(load_dataset(data).train.features) == expected
    record_property("fault_points", points)
    record_property("recovered", points)


def walk_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int) -> int:
    between = stops(tmp_path / "stops")
    fit(tmp_path / "whole")
    whole = state(tmp_path / "whole")
    points = 0
    for at in range(1, 5000, every):
        root = tmp_path / str(at)
        arrays = _FaultyArrays(at)
        with monkeypatch.context() as patch:
            arrays.patch(patch)
            refused = _raised(functools.partial(fit, root))
            assert refused is None or "out of memory" in as_edgetrain_error(refused).what, f"array {at}: {refused!r}"
        if arrays.calls < at:
            break
        points += 1
        assert state(root) in ("begun", whole, *between), f"array {at}"
        fit(root)
        assert state(root) == whole, f"array {at}"
    return points


def test_a_run_without_memory_goes_on_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: RecordProperty
) -> None:
    points = walk_a_run(tmp_path, monkeypatch, every=13)
    assert points > 5
    record_property("fault_points", points)
    record_property("recovered", points)


@pytest.mark.slow
def test_a_run_without_memory_at_any_point_goes_on_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: RecordProperty
) -> None:
    points = walk_a_run(tmp_path, monkeypatch, every=1)
    record_property("fault_points", points)
    record_property("recovered", points)
