"""A rectifier moves behind the max pool that alone reads it, and no bit changes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from benchmarks.importing.onnx_models import model_of
from edgetrain.graph.build import build_step
from edgetrain.graph.extract import extract
from edgetrain.graph.ir import Phase
from edgetrain.graph.options import TrainOptions
from edgetrain.graph.pooled_activations import activate_after_pooling
from edgetrain.graph.rewrite import calls
from edgetrain.model.importer import import_model
from edgetrain.model.model import Model
from tests.edgetrain.graph.stepping import Stepper

pytestmark = pytest.mark.compile

BATCH = 2
RELU, POOL = "relax.nn.relu", "relax.nn.max_pool2d"


def _model(*, kernel: int = 2, also_reads: str = "", outputs: tuple[str, ...] = ("logits",)) -> Model:
    """Convolution, rectifier, pool and head; `also_reads` is added to the pool's result, summed over its map."""
    random = np.random.default_rng(3)
    pads = [kernel // 2 if kernel % 2 else 0] * 4
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["conv"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["conv"], ["relu"], name="relu"),
        helper.make_node(
            "MaxPool", ["relu"], ["pool"], name="pool", kernel_shape=[kernel] * 2, strides=[2, 2], pads=pads
        ),
        helper.make_node("GlobalAveragePool", ["pool"], ["mean"], name="mean"),
        helper.make_node("GlobalAveragePool", [also_reads or "pool"], ["other"], name="other"),
        helper.make_node("Add", ["mean", "other"], ["both"], name="both"),
        helper.make_node("Flatten", ["both"], ["flat"], name="flat"),
        helper.make_node("Gemm", ["flat", "v"], ["logits"], name="head"),
    ]
    stored = {
        "w": random.standard_normal((5, 2, 3, 3)).astype(np.float32),
        "v": random.standard_normal((5, 3)).astype(np.float32),
    }
    proto = model_of(nodes, inputs={"x": ["batch", 2, 8, 8]}, outputs=list(outputs), stored=stored)
    return import_model(proto, name="pooled", batch=BATCH)


def _ops(model: Model) -> list[str]:
    return [str(call.op.name) for _, call in calls(model) if call.op.name in (RELU, POOL)]


def test_a_rectifier_that_a_pool_alone_reads_moves_behind_it() -> None:
    model = _model()
    assert _ops(model) == [RELU, POOL]
    assert _ops(activate_after_pooling(model)) == [POOL, RELU]


@pytest.mark.parametrize("kept", [{"also_reads": "relu"}, {"outputs": ("logits", "relu")}], ids=["read", "an output"])
def test_a_rectifier_that_something_else_reads_stays(kept: dict[str, object]) -> None:
    model = _model(**kept)  # type: ignore[arg-type]
    assert activate_after_pooling(model) is model


def test_nothing_as_large_as_the_pools_input_is_kept_for_the_backward_pass() -> None:
    graph = extract(build_step(_model(), TrainOptions(batch=BATCH)), "pooled").graph
    ops = graph.functions["step"]
    before = {name for op in ops if op.phase in (Phase.FORWARD, Phase.LOSS) for name in op.writes}
    kept = [name for op in ops if op.phase in (Phase.BACKWARD, Phase.UPDATE) for name in op.reads if name in before]
    assert kept
    assert (BATCH, 5, 8, 8) not in [graph.tensors[name].shape for name in kept]


@pytest.mark.parametrize("kernel", [2, 3])
def test_a_step_has_the_same_bits_either_way(kernel: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, options = _model(kernel=kernel), TrainOptions(batch=BATCH)
    random = np.random.default_rng(1)
    data, labels = random.standard_normal((BATCH, 2, 8, 8)).astype(np.float32), np.array([0, 2])
    moved = Stepper(build_step(model, options))
    monkeypatch.setattr("edgetrain.graph.build.activate_after_pooling", lambda model: model)
    as_it_was = Stepper(build_step(model, options))
    for _ in range(2):
        assert moved.step(data, labels, learning_rate=0.1) == as_it_was.step(data, labels, learning_rate=0.1)
    for name in ("w", "v"):
        np.testing.assert_array_equal(moved.values[name], as_it_was.values[name], err_msg=name)
