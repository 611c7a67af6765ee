from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from benchmarks.importing.onnx_models import model_of
from tests.edgetrain.cli.conftest import Command
from tests.edgetrain.program.tiny_device import require_device

pytestmark = pytest.mark.compile


@pytest.mark.parametrize("source", ["digits", "zoo:digits-cnn-bn"])
def test_a_small_cnn_trains_right(command: Command, source: str, tmp_path: Path) -> None:
    # With few images the scratch of one convolution is the peak, and there is no smaller plan to compare with.
    done = command("check", source, "train.batch=16", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    findings = {finding["name"]: finding for finding in report["findings"]}
    assert list(findings) == ["import", "steps", "gradients", "roles", "plan"]
    assert all(finding["is_ok"] for finding in findings.values())
    assert "the same bits as unplanned" in findings["plan"]["text"]


@pytest.mark.parametrize("loss", ["cross-entropy", "bce", "mse", "l1"])
def test_a_users_mlp_trains_right_with_every_loss(command: Command, mlp: Path, loss: str, tmp_path: Path) -> None:
    done = command("check", mlp, f"train.loss={loss}", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()[:5]] == [
        ["import", "ok"],
        ["steps", "ok"],
        ["gradients", "ok"],
        ["roles", "ok"],
        ["plan", "ok"],
    ]
    assert done.stdout.endswith("\nmlp trains here\n")


def test_every_unsupported_op_is_named(command: Command, unsupported_model: Path, tmp_path: Path) -> None:
    done = command("check", unsupported_model, cwd=tmp_path)
    assert done.returncode == 4
    assert "Frobnicate" in done.stderr
    assert "Defenestrate" in done.stderr


def test_gradients_on_an_opencl_device_are_right(command: Command, tmp_path: Path) -> None:
    require_device()
    done = command("check", "digits", "--target", "opencl", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    findings = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert findings["gradients"]["text"].startswith("6 of 6 tensors against finite differences")
    assert all(finding["is_ok"] for finding in findings.values())


def test_a_budget_that_cannot_be_kept_exits_3(command: Command, tmp_path: Path) -> None:
    assert command("check", "digits", "--budget", "1kB", cwd=tmp_path).returncode == 3


def _transformed() -> onnx.ModelProto:
    """A spatial transformer, a spectrum, norms of windows and what onnxruntime fuses, with a weight before each."""
    rng = np.random.default_rng(0)
    leaky: dict[str, Any] = {"activation": "LeakyRelu", "activation_params": [0.1], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("MatMul", ["flat", "turn"], ["six"]),
        helper.make_node("Reshape", ["six", "theta_shape"], ["theta"]),
        helper.make_node("AffineGrid", ["theta", "sizes"], ["grid"]),
        helper.make_node("FusedConv", ["x", "w"], ["c"], domain="com.microsoft", **leaky),
        helper.make_node("GridSample", ["c", "grid"], ["s"], padding_mode="reflection"),
        helper.make_node("LRN", ["s"], ["n"], size=3, alpha=0.5),
        helper.make_node("Mul", ["n", "gain"], ["g"]),
        helper.make_node("LpPool", ["g"], ["p"], kernel_shape=[2, 2]),
        helper.make_node("Reshape", ["p", "rows"], ["r"]),
        helper.make_node("DFT", ["r"], ["d"], onesided=1),
        helper.make_node("Flatten", ["d"], ["f"]),
        helper.make_node("MatMul", ["f", "last"], ["y"]),
    ]
    stored = {
        "turn": 0.02 * rng.standard_normal((2 * 6 * 6, 6)).astype(np.float32),
        "theta_shape": np.array([-1, 2, 3]),
        "sizes": np.array([2, 4, 5, 5]),
        "w": rng.standard_normal((4, 2, 3, 3)).astype(np.float32),
        "gain": rng.uniform(0.5, 1.5, (1, 4, 1, 1)).astype(np.float32),
        "rows": np.array([-1, 64, 1]),
        "last": rng.standard_normal((66, 3)).astype(np.float32),
    }
    inputs: dict[str, list[int | str]] = {"x": ["n", 2, 6, 6]}
    proto = model_of(nodes, inputs=inputs, outputs=["y"], stored=stored, opset=20, domains=["com.microsoft"])
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 3]))
    return proto


def test_gradients_through_sampling_spectra_and_windows_are_right(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "transformed.onnx"
    onnx.save(_transformed(), path)
    done = command("check", path, "train.loss=mse", "train.batch=2", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    findings = {finding["name"]: finding["text"] for finding in json.loads(done.stdout)["findings"]}
    assert findings["gradients"].startswith("4 of 4 tensors against finite differences")
    assert "uncertain" not in findings["gradients"]
