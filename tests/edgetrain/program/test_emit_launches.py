"""The driver of a program for a GPU: what it says, and what it does on a device."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgetrain.compiler.device_code import DeviceCode, Launch
from edgetrain.errors import DeviceError, InternalError
from edgetrain.program.artifact import Artifact, load_artifact
from edgetrain.program.emit_launches import emit_launching_driver, emit_source
from edgetrain.run.engines.local import LocalEngine
from tests.edgetrain.program.tiny_device import (
    ALIGNMENT_BYTES,
    build_tiny_for_gpu,
    device_graph,
    device_plan,
    require_device,
    tiny_code,
)
from tests.edgetrain.program.tiny_program import initial_values, reference_step, some_input


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return build_tiny_for_gpu(tmp_path_factory.mktemp("tiny-gpu"), device_plan())


def engine_of(program: Artifact, folder: Path) -> LocalEngine:
    require_device()
    return LocalEngine(program, threads=1, page_directory=folder)


def test_code_for_a_device_survives_its_text() -> None:
    assert DeviceCode.from_json(tiny_code().to_json()) == tiny_code()


def test_the_same_plan_gives_the_same_text() -> None:
    one, other = (emit_launching_driver(device_graph(), device_plan(), tiny_code()) for _ in range(2))
    assert one == other


def test_every_launch_of_the_plan_is_in_its_order() -> None:
    driver = emit_launching_driver(device_graph(), device_plan(), tiny_code())
    names = re.findall(r'    "(\w+)", /\* \d+ \*/', driver)
    step = driver[driver.index("int32_t edge_step") : driver.index("int32_t edge_evaluate")]
    launched = [names[int(number)] for number in re.findall(r"EDGE_LAUNCH\(\d+, (\d+),", step)]
    assert launched == ["multiply", "copy", "square", "sum", "gradient", "update"]


def test_a_call_copies_what_it_reads_and_what_it_writes() -> None:
    driver = emit_launching_driver(device_graph(), device_plan(), tiny_code())
    for function, read, written in (("step", ["w", "rate", "x"], ["w", "loss"]), ("evaluate", ["w", "x"], ["loss"])):
        body = driver.split(f"int32_t edge_{function}(void)")[1].split("\n}")[0]
        assert re.findall(r"edge_device_write\(.*/\* (\w+) \*/", body) == read
        assert re.findall(r"edge_device_read\(.*/\* (\w+) \*/", body) == written


def test_every_place_on_the_device_is_aligned() -> None:
    driver = emit_launching_driver(device_graph(), device_plan(), tiny_code())
    offsets = [int(offset) for offset in re.findall(r"^    \{(\d+)u, \d+u\}, /\* \d+ \*/$", driver, re.MULTILINE)]
    assert len(offsets) > 5
    assert all(offset % ALIGNMENT_BYTES == 0 for offset in offsets)


def test_a_plan_that_pages_is_not_emitted() -> None:
    with pytest.raises(InternalError, match="pages cannot be run on a GPU"):
        emit_launching_driver(device_graph(), device_plan("page"), tiny_code())


def test_a_source_with_anything_in_it_is_one_c_string() -> None:
    source = 'a "quoted" \\ back??/slash\nand é\n'
    lines = emit_source(replace(tiny_code(), source=source)).splitlines()[3:]
    read = "".join(ast.literal_eval(f"b{line.strip().rstrip(';')}").decode() for line in lines)
    assert read == source


def test_the_program_folder_vouches_for_what_the_device_compiles(program: Artifact) -> None:
    loaded = load_artifact(program.directory)
    assert (loaded.manifest.gpu_api, loaded.manifest.target_name) == ("opencl", "opencl")
    assert (loaded.directory / "kernels.cl").read_text(encoding="utf-8") == tiny_code().source
    assert "kernels.cl" in loaded.manifest.files


@pytest.mark.parametrize("name", ["keep", "recompute"])
def test_steps_on_a_device_are_numpy_s(name: str, tmp_path: Path) -> None:
    require_device()
    plan = device_plan(name)
    program = build_tiny_for_gpu(tmp_path, plan)
    weights = np.asarray(initial_values()["w"], np.float32)
    with engine_of(program, tmp_path) as engine:
        engine.tensor("x")[...] = some_input()
        for _ in range(3):
            loss, weights = reference_step(weights, some_input())
            engine.call("step")
            assert float(engine.tensor("loss")) == loss
            np.testing.assert_array_equal(engine.tensor("w"), weights)
        assert engine.measured_peak_bytes() == plan.peak_bytes


def test_what_the_host_writes_between_calls_reaches_the_device(program: Artifact, tmp_path: Path) -> None:
    with engine_of(program, tmp_path) as engine:
        engine.tensor("x")[...] = some_input()
        engine.call("step")
        saved = bytes(engine.saved)
        engine.call("step")
        assert bytes(engine.saved) != saved
        engine.saved[:] = saved
        engine.call("evaluate")
        expected, _ = reference_step(np.frombuffer(saved, np.float32, 1500), some_input())
        assert float(engine.tensor("loss")) == expected
        assert bytes(engine.saved) == saved


def test_two_programs_may_be_open_and_one_after_the_other(program: Artifact, tmp_path: Path) -> None:
    other = build_tiny_for_gpu(tmp_path / "other", device_plan())
    for _ in range(2):
        with engine_of(program, tmp_path) as one, engine_of(other, tmp_path) as two:
            for engine in (one, two):
                engine.tensor("x")[...] = some_input()
                engine.call("step")
            assert bytes(one.saved) == bytes(two.saved)


def test_a_run_can_go_on_with_another_plan(program: Artifact, tmp_path: Path) -> None:
    other = build_tiny_for_gpu(tmp_path / "other", device_plan("recompute"), profile=True)
    with engine_of(program, tmp_path) as engine:
        engine.tensor("x")[...] = some_input()
        engine.call("step")
        engine.switch(other)
        engine.call("step")
        _, weights = reference_step(np.asarray(initial_values()["w"], np.float32), some_input())
        _, weights = reference_step(weights, some_input())
        np.testing.assert_array_equal(engine.tensor("w"), weights)
        assert all(seconds > 0 for seconds in engine.op_seconds("step"))


def test_a_source_that_the_device_does_not_compile_is_told(tmp_path: Path) -> None:
    program = build_tiny_for_gpu(tmp_path, device_plan(), code=replace(tiny_code(), source="__kernel nonsense"))
    with pytest.raises(DeviceError, match="could not be opened") as caught:
        engine_of(program, tmp_path)
    assert "the kernels do not compile: " in caught.value.why


def test_a_launch_that_the_device_refuses_names_its_kernel(tmp_path: Path) -> None:
    launches = {**tiny_code().launches}
    launches["tiny_sum"] = (Launch(function="sum", arguments=(0, 1), groups=(1, 1, 1), threads=(1 << 20, 1, 1)),)
    program = build_tiny_for_gpu(tmp_path, device_plan(), code=replace(tiny_code(), launches=launches))
    with engine_of(program, tmp_path) as engine:
        before = bytes(engine.saved)
        with pytest.raises(DeviceError, match="`step` failed") as caught:
            engine.call("step")
        assert "sum: OpenCL error -5" in caught.value.why
        assert bytes(engine.saved) == before
