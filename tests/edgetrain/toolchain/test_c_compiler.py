"""Which compiler a target gets, and how it is called."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edgetrain.errors import DeviceError
from edgetrain.toolchain import c_compiler as toolchain
from edgetrain.toolchain.c_compiler import find_compiler, parse_triple, static_triple


@pytest.mark.parametrize("text", ["x86_64", "x86_64-windows-msvc", "", "a-b-c-d-e"])
def test_what_is_not_a_triple_for_linux_or_bare_metal_is_refused(text: str) -> None:
    with pytest.raises(DeviceError, match="is not a triple"):
        parse_triple(text)


@pytest.mark.parametrize(
    ("triple", "cpu", "target", "zig_cpu"),
    [
        ("aarch64-unknown-linux-gnu", "cortex-a72", "aarch64-linux-gnu.2.27", "baseline"),
        ("x86_64-pc-linux-musl", "", "x86_64-linux-musl", "baseline"),
        ("armv7-linux-gnueabihf", "", "arm-linux-gnueabihf.2.27", "baseline"),
        ("thumbv7em-none-eabihf", "cortex-m7", "thumb-freestanding-eabihf", "cortex_m7+vfp4d16sp"),
        ("thumbv6m-none-eabi", "cortex-m0", "thumb-freestanding-eabi", "cortex_m0"),
        ("riscv32-none-elf", "generic-rv32", "riscv32-freestanding-none", "generic_rv32"),
    ],
)
def test_triples_become_zigs_targets(triple: str, cpu: str, target: str, zig_cpu: str) -> None:
    assert toolchain.zig_target(parse_triple(triple)) == target
    assert toolchain._zig_cpu(parse_triple(triple), cpu) == zig_cpu


def test_without_a_system_compiler_zig_builds_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert find_compiler().version.startswith("zig ")


def test_android_without_the_ndk_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(DeviceError, match="no compiler for `aarch64-linux-android`") as caught:
        find_compiler("aarch64-linux-android")
    assert "NDK" in caught.value.fix


def test_zig_keeps_its_cache_where_it_is_told(tmp_path: Path) -> None:
    compiler = find_compiler("aarch64-linux-gnu", zig_cache=tmp_path)
    assert set(compiler.environment) == {"ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"}
    assert set(compiler.environment.values()) == {str(tmp_path)}


def test_without_a_place_zig_keeps_its_cache_with_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiler = find_compiler("aarch64-linux-gnu")
    assert set(compiler.environment.values()) == {str(tmp_path / "edgetrain" / "zig")}


@pytest.mark.parametrize(
    ("triple", "static"),
    [
        ("aarch64-linux-gnu", "aarch64-linux-musl"),
        ("aarch64-linux-android", "aarch64-linux-musl"),
        ("armv7a-linux-gnueabihf", "armv7a-linux-musleabihf"),
    ],
)
def test_a_trial_is_linked_with_a_library_that_may_be_static(triple: str, static: str) -> None:
    assert static_triple(triple) == static
