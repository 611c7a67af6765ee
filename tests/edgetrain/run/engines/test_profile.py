"""Timing kernels inside their own program."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from edgetrain.errors import InternalError
from edgetrain.program.artifact import Artifact
from edgetrain.run.engines.local import LocalEngine
from edgetrain.run.engines.profile import profile
from tests.edgetrain.program.tiny_program import (
    STEP_PLANS,
    build_tiny,
    host_compiler,
    some_input,
    tiny_artifact,
    tiny_graph,
    tiny_plan,
)


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    directory = tmp_path_factory.mktemp("profiled")
    return build_tiny(directory, tiny_plan(STEP_PLANS["recompute"]), host_compiler(), profile=True)


def test_every_op_of_every_function_gets_its_seconds(profiled: Artifact, tmp_path: Path) -> None:
    with LocalEngine(profiled, threads=1, page_directory=tmp_path) as engine:
        engine.tensor("x")[...] = some_input()
        found = profile(engine, tiny_graph())
    assert {f: list(seconds) for f, seconds in found.items()} == {
        f: [op.name for op in ops] for f, ops in tiny_graph().functions.items()
    }
    assert all(0 < seconds < 1 for by_op in found.values() for seconds in by_op.values())


def test_the_ops_take_no_longer_than_the_call_that_runs_them(profiled: Artifact, tmp_path: Path) -> None:
    with LocalEngine(profiled, threads=1, page_directory=tmp_path) as engine:
        engine.tensor("x")[...] = some_input()
        engine.op_seconds("step")
        started_s = time.monotonic()
        engine.call("step")
        elapsed_s = time.monotonic() - started_s
        assert 0 < sum(engine.op_seconds("step")) <= elapsed_s
        assert sum(engine.op_seconds("step")) == 0  # asking begins anew


def test_a_program_without_a_profile_says_so(tmp_path: Path) -> None:
    with (
        LocalEngine(tiny_artifact("keep"), threads=1, page_directory=tmp_path) as engine,
        pytest.raises(InternalError, match="not built to be profiled"),
    ):
        engine.op_seconds("step")
