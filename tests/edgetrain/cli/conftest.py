"""The command line as a process of its own, and one short run that several tests read."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.hints import problems

Completed = subprocess.CompletedProcess[str]
Command = Callable[..., Completed]

COMMAND = (sys.executable, "-m", "edgetrain")
SHORT = ("digits", "train.epochs=1", "data.limit=256")
# The recipe's own network has nothing to recompute: at its peak it holds what one op reads and writes.
PLANNABLE = "model.source=zoo:digits-cnn-bn"


@pytest.fixture(scope="session")
def command(command_environment: Mapping[str, str]) -> Command:
    """`command("fit", "digits", cwd=folder)` runs `edgetrain fit digits` there, to its end."""

    def run(*words: object, cwd: Path, environment: Mapping[str, str] | None = None) -> Completed:
        done = subprocess.run(
            [*COMMAND, *map(str, words)],
            cwd=cwd,
            env={**command_environment, **(environment or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        wrong = problems(done.stderr.partition("\nhint: ")[2])
        assert not wrong, "\n".join(wrong)
        return done

    return run


@pytest.fixture(scope="session")
def short_run(command: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run: 7 steps of `digits`. To be read, not written."""
    folder = tmp_path_factory.mktemp("short")
    done = command("fit", *SHORT, "--budget", "1200kB", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "runs" / "digits"


@pytest.fixture
def copied_run(short_run: Path, tmp_path: Path) -> Path:
    """The short run, for a test that changes it."""
    copy = tmp_path / "runs" / "digits"
    shutil.copytree(short_run, copy)
    return copy


@pytest.fixture
def mlp(tmp_path: Path) -> Path:
    """Two dense layers, as a user's own model."""
    rng = np.random.Generator(np.random.PCG64(0))
    weights = {
        "w1": rng.standard_normal((6, 16)) * 0.4,
        "b1": np.zeros(16),
        "w2": rng.standard_normal((16, 3)) * 0.4,
        "b2": np.zeros(3),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["hidden"]),
        helper.make_node("Tanh", ["hidden"], ["active"]),
        helper.make_node("Gemm", ["active", "w2", "b2"], ["y"]),
    ]
    return write_model(tmp_path / "mlp.onnx", nodes, weights)


def write_model(path: Path, nodes: list[onnx.NodeProto], weights: Mapping[str, Any]) -> Path:
    """A model from `x` (batch, 6) to `y` (batch, 3)."""
    graph = helper.make_graph(
        nodes,
        path.stem,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


@pytest.fixture
def unsupported_model(tmp_path: Path) -> Path:
    """A model with two ops that nobody knows."""
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="first", domain="com.example"),
        helper.make_node("Defenestrate", ["a"], ["b"], name="second", domain="com.example"),
        helper.make_node("Gemm", ["b", "w"], ["y"]),
    ]
    return write_model(tmp_path / "odd.onnx", nodes, {"w": np.ones((6, 3))})
