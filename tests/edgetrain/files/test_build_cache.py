"""The build cache: keys that cannot be confused, entries that are whole or absent."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.errors import InternalError
from edgetrain.files.build_cache import INDEX, BuildCache, cache_key, held
from edgetrain.files.scratch import OWNER

KEY = cache_key("workload", {"target": "host"})

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
_parts = st.lists(
    st.binary(max_size=4) | st.text(max_size=4) | st.dictionaries(st.text(max_size=3), _json, max_size=3), max_size=4
)


def build(path: Path) -> None:
    (path / "folder").mkdir()
    (path / "folder" / "kernels.o").write_bytes(b"object")
    (path / "empty").write_bytes(b"")


def must_not_build(path: Path) -> None:
    raise AssertionError(f"built again in {path}")


def _typed(value: object) -> object:
    """Equality that tells 1 from True, as JSON does."""
    if isinstance(value, dict):
        return {key: _typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_typed(item) for item in value]
    return (type(value), value)


@given(one=_parts, other=_parts)
def test_keys_are_equal_exactly_when_the_parts_are(one: list[bytes | str], other: list[bytes | str]) -> None:
    assert (cache_key(*one) == cache_key(*other)) == (_typed(one) == _typed(other))


def test_parts_do_not_run_together() -> None:
    assert cache_key("ab", "c") != cache_key("a", "bc")
    assert cache_key("a") != cache_key(b"a")
    assert cache_key("{}") != cache_key({})


def test_the_order_of_a_mapping_does_not_matter() -> None:
    assert cache_key({"a": 1, "b": {"c": 2, "d": 3}}) == cache_key({"b": {"d": 3, "c": 2}, "a": 1})


def test_a_key_is_the_same_in_every_process_and_version() -> None:
    assert (
        cache_key("a", b"b", {"c": [1.5, None]}) == "7546e6b9c4672806eb10f2ada242ff737b959e3ff2920ba089379a8b2ee7cf3b"
    )


@pytest.mark.parametrize("value", [{"x": float("nan")}, {"x": object()}, {"x": {1: 2}}, {"x": [{1: 2}]}])
def test_a_mapping_without_a_canonical_form_is_rejected(value: dict[str, object]) -> None:
    with pytest.raises(InternalError, match="cache key cannot hold"):
        cache_key(value)


def test_an_entry_is_built_once_and_found_again(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path / "cache")
    assert cache.get(KEY) is None
    stored = cache.put(KEY, build)
    assert (stored / "folder" / "kernels.o").read_bytes() == b"object"
    assert cache.get(KEY) == stored
    assert cache.put(KEY, must_not_build) == stored


def test_a_failed_build_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        build(path)
        raise RuntimeError("no compiler")

    with pytest.raises(RuntimeError, match="no compiler"):
        BuildCache(tmp_path).put(KEY, fail)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert BuildCache(tmp_path).get(KEY) is None


def _change(path: Path) -> None:
    path.write_bytes(b"objecT")


def _truncate(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("name", ["folder/kernels.o", INDEX])
@pytest.mark.parametrize("damage", [_change, _truncate, Path.unlink])
def test_a_damaged_entry_is_not_returned_but_built_again(name: str, damage: object, tmp_path: Path) -> None:
    assert callable(damage)
    cache = BuildCache(tmp_path)
    damage(cache.put(KEY, build) / name)
    assert cache.get(KEY) is None
    stored = cache.put(KEY, build)
    assert cache.get(KEY) == stored
    assert (stored / "folder" / "kernels.o").read_bytes() == b"object"


def test_a_stray_file_makes_an_entry_damaged(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    (cache.put(KEY, build) / "stray").write_bytes(b"")
    assert cache.get(KEY) is None


@pytest.mark.parametrize("key", ["", "../../etc", "A" * 64, KEY + "\n", KEY[:-1]])
def test_what_is_not_a_key_is_rejected(key: str, tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="not a cache key"):
        BuildCache(tmp_path).get(key)


def _put_in_process(root: Path, barrier: Barrier, number: int) -> None:
    def build_after_all_began(path: Path) -> None:
        (path / "who").write_text(str(number))
        barrier.wait(timeout=60)

    stored = BuildCache(root).put(KEY, build_after_all_began)
    barrier.wait(timeout=60)  # all have stored or lost
    (root / f"seen-{number}").write_text((stored / "who").read_text())


def test_processes_that_build_the_same_entry_at_once_all_get_the_first(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(3)
    processes = [context.Process(target=_put_in_process, args=(tmp_path, barrier, n)) for n in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len({path.read_text() for path in tmp_path.glob("seen-*")}) == 1
    assert len(list(tmp_path.glob("seen-*"))) == 3
    assert len(list(tmp_path.glob("*/*"))) == 1  # no scratch directories are left


def fill(cache: BuildCache, name: str, *, used_at: float) -> Path:
    def build(out: Path) -> None:
        (out / "data").write_bytes(bytes(1000))

    place = cache.put(cache_key(name), build)
    os.utime(place / INDEX, (used_at, used_at))
    return place


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    places = [fill(cache, str(n), used_at=1_000_000.0 + n) for n in (3, 1, 2)]
    one = sum(path.stat().st_size for path in places[0].iterdir())
    assert cache.trim(3 * one) == 0
    assert cache.trim(2 * one) == one
    assert [place.exists() for place in places] == [True, False, True]


def test_an_entry_that_was_asked_for_counts_as_used(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    old = fill(cache, "old", used_at=1_000_000.0)
    fill(cache, "older", used_at=500_000.0)
    assert cache.get(cache_key("old")) == old
    cache.trim(0)
    assert old.exists()  # just used
    assert cache.get(cache_key("older")) is None


def test_an_entry_that_is_held_stays(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    place = fill(cache, "held", used_at=1_000_000.0)
    with held(place):
        assert cache.trim(0) == 0
        assert place.exists()
    assert cache.trim(0) > 0
    assert not place.exists()


def test_compiled_kernels_count_and_go_too(tmp_path: Path) -> None:
    path = tmp_path / "objects" / "ab" / "cdef"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(500))
    os.utime(path, (1.0, 1.0))
    assert BuildCache(tmp_path).trim(100) == 500
    assert not path.exists()


def left_by_a_killed_process(place: Path) -> Path:
    place.mkdir(parents=True)
    (place / OWNER).touch()
    os.utime(place, (1.0, 1.0))
    return place


@pytest.mark.parametrize("name", [".new-a1b2", "ab/.cdef-a1b2", "objects/ab/.cdef-a1b2"])
def test_what_a_killed_process_left_anywhere_is_swept(name: str, tmp_path: Path) -> None:
    left = left_by_a_killed_process(tmp_path / name)
    entry = fill(BuildCache(tmp_path), "entry", used_at=1_000_000.0)
    assert BuildCache(tmp_path).sweep() == 1
    assert not left.exists()
    assert entry.exists()


def test_a_folder_that_goes_while_it_is_looked_at_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when two processes sweep at once, or one of them finishes its build."""
    goes = [left_by_a_killed_process(tmp_path / name) for name in ("ab", ".new-a1b2")]

    def missing(listed: Callable[..., Any]) -> Callable[..., Any]:
        def look(folder: Any) -> Any:
            if not isinstance(folder, int) and Path(folder) in goes:
                shutil.rmtree(folder, ignore_errors=True)
            return listed(folder)

        return look

    monkeypatch.setattr(os, "listdir", missing(os.listdir))
    monkeypatch.setattr(os, "scandir", missing(os.scandir))
    BuildCache(tmp_path).sweep()
    assert not goes[0].exists()
