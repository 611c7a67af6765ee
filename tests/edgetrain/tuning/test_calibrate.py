from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from edgetrain.cli.entry import main
from edgetrain.files.build_cache import BuildCache
from edgetrain.pipeline.job import Job
from edgetrain.recipes import load_recipe
from edgetrain.run.engines.profile import FunctionProfile
from edgetrain.run.sensors.storage_probe import StorageSpeed
from edgetrain.targets.device import Rates
from edgetrain.targets.profile import Target, list_targets, load_target, parse_target, to_toml, user_targets_dir
from edgetrain.tuning.calibrate import CalibrationReport, ProgramTime, kernel_times, measure_program, with_measured
from tests.edgetrain.planner.training_graphs import chain

RATES = Rates(flops_per_s=12e9, memory_bytes_per_s=3e9, launch_s=4e-7, joules_per_flop=0.0, joules_per_byte=0.0)
SPEED = StorageSpeed(read_bytes_per_s=5e8, write_bytes_per_s=2e8, latency_s=1e-4, is_direct=True)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder of profiles, empty."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = user_targets_dir()
    folder.mkdir(parents=True)
    return folder


def measured(name: str = "host") -> Target:
    return with_measured(load_target("host"), RATES, SPEED, name=name, today="2026-01-31")


def test_what_a_call_takes_beside_its_kernels_is_shared_out() -> None:
    graph = chain(2)
    seconds = {op.name: float(i + 1) for i, op in enumerate(graph.functions["step"])}
    total = sum(seconds.values())
    times = kernel_times(graph, "step", FunctionProfile(op_seconds=seconds, call_s=2 * total))
    assert [time.seconds for time in times] == [2 * s for s in seconds.values()]
    assert [time.moved_bytes for time in times] == [graph.bytes_moved(op) for op in graph.functions["step"]]


def test_what_was_measured_says_so_and_the_rest_says_what_it_said() -> None:
    before, after = load_target("host"), measured()
    assert after.device.rates == RATES
    storage = after.device.storage
    assert storage is not None
    assert (storage.read_bytes_per_s, storage.write_bytes_per_s, storage.latency_s) == (5e8, 2e8, 1e-4)
    changed = {key for key, source in after.sources.items() if source != before.sources[key]}
    assert changed == {
        "flops_per_s",
        "memory_bytes_per_s",
        "launch_s",
        "storage.read_bytes_per_s",
        "storage.write_bytes_per_s",
        "storage.latency_s",
    }
    assert after.rates_basis == "measured on 2026-01-31"


def test_a_kept_profile_takes_the_place_of_the_shipped_one(kept: Path) -> None:
    assert load_target("host").rates_basis == "assumed"
    (kept / "host.toml").write_text(to_toml(measured()), encoding="utf-8")
    found = load_target("host")
    assert (found.device.rates.flops_per_s, found.device.rates.memory_bytes_per_s) == (12e9, 3e9)
    assert found.rates_basis == "measured on 2026-01-31"


def test_a_kept_profile_of_another_name_is_this_machine_too(kept: Path) -> None:
    (kept / "lab.toml").write_text(to_toml(measured("lab")), encoding="utf-8")
    found = load_target("lab")
    assert found.is_host
    assert found.device.codegen == load_target("host").device.codegen


def test_measured_rates_follow_the_cores_that_there_are(kept: Path) -> None:
    codegen = load_target("host").device.codegen
    more = measured().with_device(codegen=dataclasses.replace(codegen, cores=2 * codegen.cores))
    (kept / "host.toml").write_text(to_toml(more), encoding="utf-8")
    found = load_target("host")
    assert found.device.rates.flops_per_s == 6e9  # half of the cores that it was measured with
    assert found.rates_basis == "assumed"


def test_the_list_shows_what_is_measured_and_what_is_assumed(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (kept / "host.toml").write_text(to_toml(measured()), encoding="utf-8")
    (kept / "lab.toml").write_text(to_toml(measured("lab")), encoding="utf-8")
    assert main(["targets", "--json"]) == 0
    names = [target["name"] for target in json.loads(capsys.readouterr().out)]
    assert names == sorted({*list_targets(), "lab"})
    assert main(["targets"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")}
    assert "measured on 2026-01-31" in rows["host"]
    assert "assumed" in rows["jetson"]


@pytest.mark.parametrize("name", ["jetson", "calibrate", "a/b", "../x", ""])
def test_a_name_that_would_mislead_or_escape_is_refused(name: str, kept: Path) -> None:
    assert main(["targets", "calibrate", name]) == 2
    assert not list(kept.iterdir())


def test_the_report_sets_planned_beside_measured() -> None:
    time = ProgramTime(name="a", is_fitted=True, measured_s=0.010, planned_before_s=0.002, planned_s=0.011)
    check = dataclasses.replace(time, name="b", is_fitted=False)
    text = CalibrationReport(target=measured(), programs=(time, check), storage=SPEED).to_text()
    assert "12 GFLOP/s" in text
    assert "500 MB/s read, 200 MB/s written" in text
    rows = [line.split() for line in text.splitlines() if line.startswith(("a ", "b "))]
    assert rows[0] == ["a", "10.0", "ms", "11.0", "ms", "2.0", "ms"]
    assert rows[1][-4:] == ["used", "for", "the", "rates)"]


@pytest.mark.compile
def test_a_program_of_the_zoo_is_measured_kernel_by_kernel(build_cache: BuildCache) -> None:
    job = Job(recipe=load_recipe("digits"), target=load_target("host"), cache=build_cache, threads=1)
    kernels, step_s = measure_program(job, "digits-cnn", 4)
    assert all(kernel.seconds > 0 for kernel in kernels)
    assert sum(kernel.seconds for kernel in kernels) == pytest.approx(step_s)
    assert sum(kernel.flops for kernel in kernels) > 10**6


@pytest.mark.parametrize("name", list_targets())
def test_a_profile_that_was_written_reads_back(name: str) -> None:
    import tomllib

    target = load_target(name)
    again = parse_target(tomllib.loads(to_toml(target)), name=name, where="written")
    assert dataclasses.replace(again, sources={}) == dataclasses.replace(target, sources={})
    assert again.sources.keys() == target.sources.keys()
