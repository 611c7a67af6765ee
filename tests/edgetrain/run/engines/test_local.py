"""Compiled programs, run for real and compared with NumPy."""

from __future__ import annotations

import itertools
import mmap
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgetrain.errors import DeviceError, InternalError
from edgetrain.program.artifact import Artifact, load_artifact
from edgetrain.run.engines.engine import Engine
from edgetrain.run.engines.local import LocalEngine
from tests.edgetrain.program.tiny_program import (
    ARENA_BYTES,
    COUNT,
    PERSISTENT_BYTES,
    PLANS,
    STEP_PLANS,
    STORING_BUDGET_BYTES,
    Floats,
    build_tiny,
    host_compiler,
    initial_values,
    reference_step,
    some_input,
    tiny_artifact,
    tiny_plan,
)


def _engine(artifact: Artifact, directory: Path, *, threads: int = 1) -> LocalEngine:
    return LocalEngine(artifact, threads=threads, page_directory=directory)


def _initial_weights() -> Floats:
    return initial_values()["w"].astype(np.float32)


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@contextmanager
def _file_size_limit(nbytes: int) -> Iterator[None]:
    """A full disk for anyone: the system refuses to let files grow, and Python ignores the signal."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("plan", PLANS)
def test_five_steps_are_numpys_five_steps_bit_for_bit(plan: str, threads: int, tmp_path: Path) -> None:
    weights = _initial_weights()
    with _engine(tiny_artifact(plan), tmp_path, threads=threads) as engine:
        engine.tensor("x")[...] = some_input()
        for _ in range(5):
            loss, weights = reference_step(weights, some_input())
            engine.call("step")
            assert float(engine.tensor("loss")) == loss
            assert engine.tensor("w").tobytes() == weights.tobytes()


@pytest.mark.parametrize("plan", ["keep", "page unaligned", "store"])
def test_a_build_without_threads_computes_the_same(plan: str, tmp_path: Path) -> None:
    loss, weights = reference_step(_initial_weights(), some_input())
    with _engine(tiny_artifact(plan, threads=False), tmp_path, threads=4) as engine:
        engine.tensor("x")[...] = some_input()
        engine.call("step")
        assert float(engine.tensor("loss")) == loss
        assert engine.tensor("w").tobytes() == weights.tobytes()


@pytest.mark.parametrize("plan", ["keep", "store"])
def test_evaluate_leaves_the_weights_alone(plan: str, tmp_path: Path) -> None:
    with _engine(tiny_artifact(plan), tmp_path) as engine:
        engine.tensor("x")[...] = some_input()
        engine.call("evaluate")
        assert float(engine.tensor("loss")) == reference_step(_initial_weights(), some_input())[0]
        assert engine.tensor("w").tobytes() == _initial_weights().tobytes()


def test_a_local_engine_is_an_engine(tmp_path: Path) -> None:
    with _engine(tiny_artifact("keep"), tmp_path) as local:
        engine: Engine = local
        assert engine.tensor("x").shape == (3, COUNT // 3)


@pytest.mark.parametrize("plan", ["keep", "store"])
def test_memory_starts_with_the_initial_parameters(plan: str, tmp_path: Path) -> None:
    with _engine(tiny_artifact(plan), tmp_path) as engine:
        for name, value in initial_values().items():
            assert engine.tensor(name).tobytes() == value.tobytes()
        assert not engine.tensor("x").any()


def test_a_plan_that_stores_needs_less_arena_than_its_parameters_and_state() -> None:
    manifest = tiny_artifact("store").manifest
    stored = {name for name, record in manifest.tensors.items() if record.slot is not None}
    assert stored == {"w", "momentum"}
    assert manifest.arena_bytes <= STORING_BUDGET_BYTES < ARENA_BYTES
    assert manifest.page_file_bytes >= 8192 * len(stored)


def test_checkpoints_do_not_depend_on_what_is_stored(tmp_path: Path) -> None:
    saved = []
    for plan in ("keep", "store"):
        with _engine(tiny_artifact(plan), tmp_path) as engine:
            engine.tensor("x")[...] = some_input()
            engine.call("step")
            saved.append(bytes(engine.saved))
    assert saved[0] == saved[1][: len(saved[0])]  # the planner rounds the end up to its alignment


def test_a_stored_parameter_is_written_through_its_view(tmp_path: Path) -> None:
    weights = _initial_weights() + 1
    with _engine(tiny_artifact("store"), tmp_path) as engine:
        engine.tensor("x")[...] = some_input()
        engine.tensor("w")[...] = weights
        engine.tensor("momentum")[...] = 5  # must not undo what was just written
        engine.call("step")
        loss, expected = reference_step(weights, some_input())
        assert float(engine.tensor("loss")) == loss
        assert engine.tensor("w").tobytes() == expected.tobytes()
        assert (engine.tensor("momentum") == 5).all()


def test_stored_parameters_cannot_be_asked_for_after_close(tmp_path: Path) -> None:
    with _engine(tiny_artifact("store"), tmp_path) as engine:
        engine.call("evaluate")
    with pytest.raises(InternalError, match="after `close`"):
        engine.tensor("w")


@pytest.mark.parametrize("plan", ["keep", "store"])
def test_saved_bytes_restore_the_training(plan: str, tmp_path: Path) -> None:
    with _engine(tiny_artifact(plan), tmp_path) as engine:
        engine.tensor("x")[...] = some_input()
        engine.call("step")
        checkpoint = bytes(engine.saved)
        engine.call("step")
        after_two = bytes(engine.saved)
        assert after_two != checkpoint
        engine.saved[:] = checkpoint
        engine.call("step")
        assert bytes(engine.saved) == after_two


def test_a_failing_kernel_is_reported_with_its_op(tmp_path: Path) -> None:
    with _engine(tiny_artifact("page"), tmp_path) as engine:
        engine.tensor("x")[0, 0] = -1
        with pytest.raises(DeviceError, match="`step` failed at op `grad`") as caught:
            engine.call("step")
        assert "tiny_gradient" in caught.value.why
        engine.tensor("x")[...] = some_input()
        engine.call("step")  # the engine is still good


def test_measured_memory_is_what_was_touched_and_never_more_than_the_arena(tmp_path: Path) -> None:
    with _engine(tiny_artifact("keep"), tmp_path) as engine:
        before = engine.measured_peak_bytes()
        assert 0 < before <= -(-PERSISTENT_BYTES // mmap.PAGESIZE) * mmap.PAGESIZE
        engine.call("step")
        assert before < engine.measured_peak_bytes() <= ARENA_BYTES


def test_each_touched_page_is_counted_once(tmp_path: Path) -> None:
    with _engine(tiny_artifact("keep"), tmp_path) as engine:
        before = engine.measured_peak_bytes()
        engine._memory.view[ARENA_BYTES - 1] = 1
        engine._memory.view[ARENA_BYTES - 2] = 1
        assert engine.measured_peak_bytes() == before + mmap.PAGESIZE


SPARE_BYTES = 100 * mmap.PAGESIZE


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("order", list(itertools.permutations(PLANS, 3)), ids=", ".join)
def test_another_plan_after_every_step_changes_no_bit(order: tuple[str, ...], threads: int, tmp_path: Path) -> None:
    weights = _initial_weights()
    with _engine(tiny_artifact("keep"), tmp_path, threads=threads) as engine:
        for plan in (*order, "keep"):
            engine.tensor("x")[...] = some_input()
            loss, weights = reference_step(weights, some_input())
            engine.call("step")
            assert float(engine.tensor("loss")) == loss
            assert engine.tensor("w").tobytes() == weights.tobytes()
            engine.switch(tiny_artifact(plan))
            assert engine.artifact == tiny_artifact(plan)


def test_a_switch_gives_memory_back_and_takes_it_again(tmp_path: Path) -> None:
    small, large = tiny_artifact("recompute"), tiny_artifact("keep", spare_bytes=SPARE_BYTES)
    with LocalEngine(large, threads=1, page_directory=tmp_path, reserve_bytes=0) as engine:
        weights, before = engine.tensor("w"), bytes(engine.saved)
        engine.tensor("x")[...] = 1
        np.frombuffer(engine._memory.view[PERSISTENT_BYTES:], np.uint8)[...] = 1
        assert engine.measured_peak_bytes() == ARENA_BYTES + SPARE_BYTES
        engine.switch(small)
        assert engine.measured_peak_bytes() <= -(-PERSISTENT_BYTES // mmap.PAGESIZE) * mmap.PAGESIZE
        assert bytes(engine.saved) == before
        engine.tensor("x")[...] = some_input()
        engine.call("step")
        assert engine.measured_peak_bytes() <= ARENA_BYTES
        assert weights.tobytes() == reference_step(_initial_weights(), some_input())[1].tobytes(), "a view went stale"
        engine.switch(large)
        engine.call("step")
        assert len(engine._memory.view) == ARENA_BYTES + SPARE_BYTES


def test_a_plan_larger_than_the_reserve_is_refused_and_the_old_one_goes_on(tmp_path: Path) -> None:
    with _engine(tiny_artifact("keep"), tmp_path) as engine:
        engine.tensor("x")[...] = some_input()
        with pytest.raises(DeviceError, match="cannot grow"):
            engine.switch(tiny_artifact("keep", spare_bytes=SPARE_BYTES))
        engine.call("step")
        assert float(engine.tensor("loss")) == reference_step(_initial_weights(), some_input())[0]


def test_a_plan_whose_page_file_does_not_fit_is_refused_and_the_old_one_goes_on(tmp_path: Path) -> None:
    with _engine(tiny_artifact("keep"), tmp_path) as engine:
        engine.tensor("x")[...] = some_input()
        with _file_size_limit(4096), pytest.raises(DeviceError, match="could not be opened"):
            engine.switch(tiny_artifact("page"))
        assert engine.artifact == tiny_artifact("keep")
        engine.call("step")
        assert float(engine.tensor("loss")) == reference_step(_initial_weights(), some_input())[0]


def test_a_program_of_another_graph_is_refused(tmp_path: Path) -> None:
    other = tiny_artifact("page")
    manifest = replace(other.manifest, files={**other.manifest.files, "graph.json": "0" * 64})
    with _engine(tiny_artifact("keep"), tmp_path) as engine, pytest.raises(DeviceError, match="another graph"):
        engine.switch(Artifact(directory=other.directory, manifest=manifest))


def test_switching_leaves_no_file_and_no_thread_behind(tmp_path: Path) -> None:
    def threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    with _engine(tiny_artifact("keep"), tmp_path, threads=3) as engine:
        files, running = _open_files(), threads()
        for _ in range(3):
            for plan in ("page", "keep"):
                engine.switch(tiny_artifact(plan))
                engine.call("step")
        assert (_open_files(), threads()) == (files, running)


_OVERRUN = """
import ctypes, sys
from pathlib import Path
from edgetrain.program.artifact import load_artifact
from edgetrain.run.engines.local import LocalEngine
engine = LocalEngine(load_artifact(Path(sys.argv[1])), threads=1, page_directory=Path(sys.argv[2]))
ctypes.memset(engine._memory.address + int(sys.argv[3]), 1, 1)
"""


@pytest.mark.parametrize(("offset", "killed"), [(-1, True), (0, False), (ARENA_BYTES - 1, False), (ARENA_BYTES, True)])
def test_touching_a_byte_outside_the_arena_ends_the_process(offset: int, killed: bool, tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", _OVERRUN, str(tiny_artifact("keep").directory), str(tmp_path), str(offset)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(arguments, capture_output=True, env=environment, check=False)
    assert (done.returncode == -signal.SIGSEGV) == killed, done.stderr.decode()


def test_an_unknown_tensor_or_function_is_rejected(tmp_path: Path) -> None:
    with _engine(tiny_artifact("keep"), tmp_path) as engine:
        with pytest.raises(InternalError, match="no persistent tensor `h`"):
            engine.tensor("h")
        with pytest.raises(InternalError, match="no function `apply`"):
            engine.call("apply")


def test_closing_twice_is_fine_and_views_outlive_the_engine(tmp_path: Path) -> None:
    engine = _engine(tiny_artifact("keep"), tmp_path)
    weights = engine.tensor("w")
    engine.close()
    engine.close()
    assert weights.tobytes() == _initial_weights().tobytes()
    with pytest.raises(InternalError, match="after `close`"):
        engine.call("step")


def test_a_second_engine_of_the_same_program_is_refused_until_the_first_is_closed(tmp_path: Path) -> None:
    with _engine(tiny_artifact("keep"), tmp_path), pytest.raises(DeviceError, match="could not be opened") as caught:
        _engine(tiny_artifact("keep"), tmp_path)
    assert "open already" in caught.value.why
    _engine(tiny_artifact("keep"), tmp_path).close()


def test_two_different_programs_run_side_by_side(tmp_path: Path) -> None:
    with _engine(tiny_artifact("keep"), tmp_path, threads=2) as one, _engine(tiny_artifact("page"), tmp_path) as two:
        for engine in (one, two):
            engine.tensor("x")[...] = some_input()
        for _ in range(3):
            one.call("step")
            two.call("step")
        assert bytes(one.saved) == bytes(two.saved)


def test_a_rebuilt_library_at_the_same_path_is_the_one_that_runs(tmp_path: Path) -> None:
    shutil.copytree(tiny_artifact("keep").directory, tmp_path / "program")
    first = load_artifact(tmp_path / "program")
    _engine(first, tmp_path).close()
    second = build_tiny(tmp_path, tiny_plan(STEP_PLANS["page"]), host_compiler())
    assert second.directory == first.directory
    with _engine(second, tmp_path) as engine, pytest.raises(DeviceError), _file_size_limit(0):
        engine.call("step")  # only the program that pages notices the limit


@pytest.mark.parametrize("threads", [0, -1, 65])
def test_a_thread_count_out_of_range_is_refused(threads: int, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="could not be opened") as caught:
        _engine(tiny_artifact("keep"), tmp_path, threads=threads)
    assert "thread count" in caught.value.why


def test_a_missing_page_directory_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="could not be opened") as caught:
        _engine(tiny_artifact("page"), tmp_path / "missing")
    assert "No such file" in caught.value.why
    assert "page directory" in caught.value.fix


def test_a_page_file_that_does_not_fit_is_reported_before_the_first_step(tmp_path: Path) -> None:
    with _file_size_limit(4096), pytest.raises(DeviceError, match="could not be opened") as caught:
        _engine(tiny_artifact("page"), tmp_path)
    assert "(code -5)" in caught.value.why
    assert "free space" in caught.value.fix


def test_a_disk_that_fills_up_during_a_step_is_reported_and_the_next_step_can_run(tmp_path: Path) -> None:
    loss, _ = reference_step(_initial_weights(), some_input())
    with _engine(tiny_artifact("page"), tmp_path) as engine:
        engine.tensor("x")[...] = some_input()
        with _file_size_limit(4096), pytest.raises(DeviceError, match="`step` failed") as caught:
            engine.call("step")  # the first page goes through, the second does not: a short write, then an error
        assert "writing the page file failed" in caught.value.why
        engine.call("step")
        assert float(engine.tensor("loss")) == loss


def test_the_page_file_has_no_name_and_is_closed_with_the_engine(tmp_path: Path) -> None:
    descriptors = _open_files()
    with _engine(tiny_artifact("page"), tmp_path) as engine:
        engine.call("step")
        assert list(tmp_path.iterdir()) == []
        assert _open_files() == descriptors + 1
    assert _open_files() == descriptors


def test_a_library_of_another_machine_is_refused_with_the_target_in_the_message(tmp_path: Path) -> None:
    artifact = tiny_artifact("keep")
    shutil.copytree(artifact.directory, tmp_path / "program")
    (tmp_path / "program" / artifact.manifest.library).write_bytes(b"\x7fELF of another machine")
    foreign = Artifact(
        directory=tmp_path / "program",
        manifest=replace(artifact.manifest, target_name="pi", triple="aarch64-linux-gnu"),
    )
    with pytest.raises(DeviceError, match="cannot be loaded") as caught:
        _engine(foreign, tmp_path)
    assert "`pi` aarch64-linux-gnu" in caught.value.why
