"""Claims about device profiles."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from edgetrain.errors import UsageError
from edgetrain.locate import data_path
from edgetrain.targets.host import HostFacts, Isa
from edgetrain.targets.profile import Target, complete_host, list_targets, load_target, parse_target, to_json, to_toml

EXPECTED = ("android-a78", "cortex-m4", "cortex-m7", "host", "jetson", "opencl", "raspberry-pi-4", "server-gpu")


def profile(name: str) -> dict[str, Any]:
    return tomllib.loads(data_path("targets", f"{name}.toml").read_text(encoding="utf-8"))


def numbers_of(profile: Mapping[str, Any], prefix: str = "") -> set[str]:
    """Every dotted key of a profile that holds a number, but for a cache that nobody knows."""
    found: set[str] = set()
    for key, value in profile.items():
        if isinstance(value, Mapping) and key != "sources":
            found |= numbers_of(value, f"{key}.")
        elif isinstance(value, int | float) and not isinstance(value, bool) and (key, value) != ("cache_bytes", 0):
            found.add(prefix + key)
    return found


def test_the_profiles_are_the_documented_ones() -> None:
    assert list_targets() == EXPECTED


@pytest.mark.parametrize("name", EXPECTED)
def test_every_profile_loads_and_every_number_has_a_source(name: str) -> None:
    target = load_target(name)
    assert target.name == name
    assert target.summary
    assert set(target.sources) == numbers_of(to_json(target))
    assert all(len(source.partition(":")[2]) > 5 for source in target.sources.values())


@pytest.mark.parametrize("name", ["jetson", "server-gpu"])
def test_a_target_with_an_unused_gpu_says_so(name: str) -> None:
    assert "Kernels for its GPU are not generated yet" in load_target(name).note


def test_keys_that_nothing_reads_any_more_are_left_out_of_older_files() -> None:
    older = {**profile("jetson"), "accelerator": "cuda", "idle_w": {"value": 3.0, "source": "assumption: at idle"}}
    assert parse_target(older, name="jetson", where="test") == load_target("jetson")


def test_a_profile_s_file_reads_back_as_the_target() -> None:
    for name in ("jetson", "cortex-m4"):
        target = load_target(name)
        assert parse_target(tomllib.loads(to_toml(target)), name=name, where="test") == target


def test_the_host_is_what_was_detected() -> None:
    fallback = parse_target(profile("host"), name="host", where="test")
    isa = Isa(cpu="x86-64-v4", features="", vector_bits=512, vector_registers=32)
    target = complete_host(fallback, HostFacts(isa=isa, cores=4, memory_bytes=123456789))
    assert (target.device.codegen.cpu, target.device.codegen.cores, target.device.memory_bytes) == (
        "x86-64-v4",
        4,
        123456789,
    )
    assert (
        target.device.rates.flops_per_s == fallback.device.rates.flops_per_s * 8
    )  # twice the lanes, four times the cores
    assert target.is_host
    assert target.sources["codegen.cores"].startswith("detected")


def test_the_host_and_its_gpu_run_here() -> None:
    assert [name for name in EXPECTED if load_target(name).is_host] == ["host", "opencl"]


def test_an_unknown_name_is_answered_with_the_close_ones() -> None:
    with pytest.raises(UsageError, match="did you mean `jetson`"):
        load_target("jetsn")


def test_a_path_loads_a_profile_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(data_path("targets", "jetson.toml").read_bytes())
    jetson = load_target("jetson").with_device(name="mine")
    assert load_target(path) == dataclasses.replace(jetson, name="mine")
    with pytest.raises(UsageError, match="no target profile"):
        load_target(str(tmp_path / "other.toml"))


def test_a_broken_profile_lists_all_mistakes_at_once() -> None:
    data = profile("jetson")
    del data["summary"]
    data["memory_bytes"] = 8_000_000_000
    data["flops_per_s"]["value"] = -1
    data["launch_s"]["source"] = "a friend told me"
    data["os"] = "linus"
    data["color"] = "green"
    data["codegen"]["cores"]["value"] = "six"
    data["storage"]["kind"] = "tape"
    with pytest.raises(UsageError) as caught:
        parse_target(data, name="x", where="x.toml")
    text = str(caught.value)
    for expected in (
        "8 mistakes",
        "`summary` is missing",
        "`memory_bytes` needs a source",
        "`flops_per_s` is `-1`",
        "a friend told me",
        "did you mean `linux`",
        "`color` is not a known key",
        "`codegen.cores` is `six`",
        "`storage.kind` is `tape`",
    ):
        assert expected in text


@pytest.mark.parametrize("key", sorted(set(profile("jetson")) - {"note", "storage"}))
def test_no_key_but_the_optional_ones_can_be_left_out(key: str) -> None:
    data = profile("jetson")
    del data[key]
    with pytest.raises(UsageError, match=f"`{key}` is missing"):
        parse_target(data, name="x", where="x.toml")


def test_a_device_may_have_no_storage() -> None:
    data = profile("jetson")
    del data["storage"]
    target: Target = parse_target(data, name="x", where="x.toml")
    assert target.device.storage is None


def test_a_file_that_is_not_toml_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("name = ")
    with pytest.raises(UsageError, match="not valid TOML"):
        load_target(tmp_path / "x.toml")
