"""The step benchmark's own parts: what a peer is given, what is counted, and how a profile is put together."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from benchmarks.peers.process import PeerProcess
from benchmarks.peers.protocol import CannotError, Job, take_turn
from benchmarks.peers.step_graph import read_step_graph, step_flops
from benchmarks.step_models import chosen
from benchmarks.step_profile import rows
from edgetrain.graph.ir import Op, Phase, Role, Tensor, TrainGraph
from edgetrain.model.onnx_build import GraphWriter
from edgetrain.run.engines.profile import FunctionProfile

BATCH, TOKENS, WIDTH = 2, 5, 4


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = BATCH
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def dense(writer: GraphWriter, x: str, name: str) -> str:
    weight = writer.weight(f"{name}.weight", np.zeros((WIDTH, WIDTH), np.float32))
    product = writer.node("MatMul", [x, weight], f"{name}.product")
    return writer.node("Add", [product, writer.weight(f"{name}.bias", np.zeros(WIDTH, np.float32))], name)


def transformer() -> onnx.ModelProto:
    """One head of attention and a GELU, spelled out as exporters do."""
    writer = GraphWriter()
    query, key, value = (dense(writer, "tokens", name) for name in ("query", "key", "value"))
    y = writer.node("MatMul", [query, writer.node("Transpose", [key], "turned", perm=[0, 2, 1])], "products")
    y = writer.node("Mul", [y, writer.constant("scale", np.array(0.5, np.float32))], "scaled")
    y = writer.node("Add", [y, writer.constant("mask", np.array(0.0, np.float32))], "scores")
    y = writer.node("Softmax", [y], "shares", axis=-1)
    x = writer.node("MatMul", [y, value], "mixed")
    y = writer.node("Div", [x, writer.constant("root", np.array(2**0.5, np.float32))], "divided")
    y = writer.node("Add", [writer.node("Erf", [y], "erf"), writer.constant("one", np.array(1.0, np.float32))], "gate")
    y = writer.node(
        "Mul", [writer.node("Mul", [x, y], "gated"), writer.constant("half", np.array(0.5, np.float32))], "g"
    )
    axes = writer.constant("axes", np.array([1], np.int64))
    x = writer.node("ReduceSum", [y, axes], "logits", keepdims=0)
    return writer.finish_with("t", inputs={"tokens": (TensorProto.FLOAT, (TOKENS, WIDTH))}, classes=WIDTH)


def test_what_exporters_spell_out_is_put_together(tmp_path: Path) -> None:
    graph = read_step_graph(saved(transformer(), tmp_path))
    ops = [node.op for node in graph.nodes]
    assert ops == ["Linear", "Linear", "Linear", "Transpose", "Attention", "Gelu", "ReduceSum"]
    attention = graph.nodes[4]
    assert attention.inputs == ("query", "turned", "value", "mask")
    assert attention.attributes["scale"] == 0.5


def test_a_gelu_with_another_factor_is_none(tmp_path: Path) -> None:
    model = transformer()
    (half,) = [tensor for tensor in model.graph.initializer if tensor.name == "half"]
    half.CopyFrom(onnx.numpy_helper.from_array(np.array(0.4, np.float32), "half"))
    assert "Gelu" not in [node.op for node in read_step_graph(saved(model, tmp_path)).nodes]


def test_arithmetic_counts_a_gradient_for_each_factor_that_has_one(tmp_path: Path) -> None:
    linear = 2 * BATCH * TOKENS * WIDTH * WIDTH * 2  # the tokens have no gradient
    attention = 2 * 2 * BATCH * TOKENS * TOKENS * WIDTH * 3
    assert step_flops(read_step_graph(saved(transformer(), tmp_path))) == 3 * linear + attention


def test_arithmetic_of_a_convolution_with_groups(tmp_path: Path) -> None:
    writer = GraphWriter()
    weight = np.zeros((6, 1, 3, 3), np.float32)
    x = writer.convolution("image", weight, "first", pads=(1, 1, 1, 1), group=6)
    x = writer.convolution(x, weight, "second", pads=(1, 1, 1, 1), group=6)
    writer.node("ReduceMean", [x], "logits", axes=[2, 3], keepdims=0)
    path = saved(writer.finish("c", image=(6, 8, 8), classes=6), tmp_path)
    forward = 2 * BATCH * 6 * 8 * 8 * 9
    assert step_flops(read_step_graph(path)) == forward * 2 + forward * 3


def test_a_turn_of_several_steps_tells_the_loss_of_the_first() -> None:
    losses = itertools.count(1.0)
    assert take_turn(lambda: next(losses), 3).loss == 1.0
    assert next(losses) == 5.0  # one step to warm up, three that count
    assert take_turn(lambda: next(losses), 1).loss == 6.0


def test_a_peer_that_is_not_installed_says_so(tmp_path: Path) -> None:
    path = saved(transformer(), tmp_path)
    job = Job(peer="torch", model=str(path), parameters="", data="", threads=1, learning_rate=0.1, momentum=0.9)
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho \'{"cannot": "not installed: torch"}\'\n')
    python.chmod(0o755)
    with pytest.raises(CannotError, match="not installed: torch"), PeerProcess(job, {"torch": str(python)}):
        pass


def test_a_peer_that_dies_leaves_its_last_words(tmp_path: Path) -> None:
    job = Job(peer="ort", model="", parameters="", data="", threads=1, learning_rate=0.1, momentum=0.9)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho Segmentation fault >&2\nexit 3\n")
    python.chmod(0o755)
    with pytest.raises(CannotError, match="ended with 3: Segmentation fault"), PeerProcess(job, {"ort": str(python)}):
        pass


def test_a_model_is_chosen_with_all_its_batches_or_with_one() -> None:
    assert [subject.batch for subject in chosen(["resnet-18"])] == [4, 16]
    assert [subject.batch for subject in chosen(["resnet-18:16"])] == [16]
    with pytest.raises(SystemExit, match="no model resnet-19"):
        chosen(["resnet-19"])


def test_a_profile_adds_up_calls_of_one_kernel_on_one_shape_slowest_first() -> None:
    shapes = {"a": (8,), "b": (8,), "c": (8,), "d": (2, 8)}
    tensors = {n: Tensor(name=n, shape=s, dtype="float32", role=Role.TEMPORARY) for n, s in shapes.items()}
    ops = (
        Op(name="0", kernel="k", reads=("a",), writes=("b",), phase=Phase.FORWARD, flops=1000, source="relu"),
        Op(name="1", kernel="m", reads=("b",), writes=("d",), phase=Phase.FORWARD, flops=10),
        Op(name="2", kernel="k", reads=("b",), writes=("c",), phase=Phase.FORWARD, flops=1000),
    )
    graph = TrainGraph(name="g", tensors=tensors, functions={"step": ops})
    found = rows(graph, FunctionProfile(op_seconds={"0": 1e-6, "1": 1.5e-6, "2": 3e-6}, call_s=8e-6))
    first, second, total = found
    assert (first["kernel"], first["calls"], first["shapes"]) == ("k", 2, "8>8")
    assert (first["seconds"], first["share"], first["bytes"]) == (pytest.approx(4e-6), pytest.approx(0.5), 128)
    assert first["gflops"] == pytest.approx(2000 / 4e-6 / 1e9)
    assert second["kernel"] == "m"
    assert (total["seconds"], total["flops"], total["calls"]) == (8e-6, 2010, 3)
