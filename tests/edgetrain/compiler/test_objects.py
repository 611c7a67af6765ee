"""The same kernel, target and schedule meets LLVM once; anything else meets it again."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from edgetrain._tvm import te, topi
from edgetrain.compiler import objects
from edgetrain.compiler.objects import ObjectStore, compile_archive
from edgetrain.graph.extract import Kernel
from edgetrain.targets.device import Codegen
from edgetrain.toolchain.object_archive import read_archive
from tests.edgetrain.processors import processor

pytestmark = pytest.mark.compile

TARGET = processor("x86_64-linux-gnu", "x86-64-v3")


def _kernel(symbol: str = "k0_relu", size: int = 64) -> Kernel:
    x = te.placeholder((size,), name="x")
    return Kernel(symbol=symbol, function=te.create_prim_func([x, topi.nn.relu(x)]))


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path / "objects")


def test_a_known_kernel_is_not_compiled_again(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compile_archive([_kernel(), _kernel("k1_relu", 32)], TARGET, tmp_path / "first.a", store=store) == 2
    monkeypatch.setattr(objects, "compile_kernels", lambda *_: pytest.fail("LLVM was asked"))
    assert compile_archive([_kernel(), _kernel("k1_relu", 32)], TARGET, tmp_path / "again.a", store=store) == 0
    assert (tmp_path / "first.a").read_bytes() == (tmp_path / "again.a").read_bytes()


def test_another_model_may_call_it_by_another_name(store: ObjectStore, tmp_path: Path) -> None:
    compile_archive([_kernel()], TARGET, tmp_path / "first.a", store=store)
    assert compile_archive([_kernel("k17_activation")], TARGET, tmp_path / "other.a", store=store) == 0
    fresh = ObjectStore(tmp_path / "fresh")
    compile_archive([_kernel("k17_activation")], TARGET, tmp_path / "fresh.a", store=fresh)
    assert (tmp_path / "other.a").read_bytes() == (tmp_path / "fresh.a").read_bytes()
    assert b"k17_activation\0" in (tmp_path / "other.a").read_bytes()
    assert b"k0_relu\0" not in (tmp_path / "other.a").read_bytes()


@pytest.mark.parametrize("change", ["size", "target", "in place"])
def test_another_kernel_or_target_is_another_object(change: str, store: ObjectStore, tmp_path: Path) -> None:
    compile_archive([_kernel()], TARGET, tmp_path / "first.a", store=store)
    changed: dict[str, tuple[Any, Codegen]] = {
        "size": (_kernel(size=65), TARGET),
        "target": (_kernel(), dataclasses.replace(TARGET, cpu="x86-64-v2")),
        "in place": (dataclasses.replace(_kernel(), aliases=((0, 1),)), TARGET),
    }
    kernel, target = changed[change]
    assert compile_archive([kernel], target, tmp_path / "other.a", store=store) == 1


def test_a_damaged_object_is_compiled_again(store: ObjectStore, tmp_path: Path) -> None:
    compile_archive([_kernel()], TARGET, tmp_path / "first.a", store=store)
    (kept,) = [path for path in store.folder.rglob("*") if path.is_file()]
    kept.write_bytes(kept.read_bytes()[:-1])
    assert compile_archive([_kernel()], TARGET, tmp_path / "again.a", store=store) == 1
    assert read_archive(tmp_path / "again.a") == read_archive(tmp_path / "first.a")


def test_a_store_that_cannot_be_written_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = ObjectStore(tmp_path / "file" / "objects")
    assert compile_archive([_kernel()], TARGET, tmp_path / "kernels.a", store=store) == 1
    assert len(read_archive(tmp_path / "kernels.a")) == 1
