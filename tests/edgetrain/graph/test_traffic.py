"""Bytes before and after fusion, counted by hand on a step of three ops and a view."""

from __future__ import annotations

import numpy as np
import pytest

from edgetrain._tvm import relax
from edgetrain.graph.build import BuiltFunction, BuiltStep, build_step
from edgetrain.graph.extract import extract
from edgetrain.graph.ir import Role, Tensor
from edgetrain.graph.options import TrainOptions
from edgetrain.graph.traffic import Traffic
from tests.edgetrain.graph.small_models import BATCH, cnn_model, mlp_model

SHAPE = (4, 8)
NBYTES = 4 * 8 * 4


def _tensor(name: str, role: Role) -> Tensor:
    return Tensor(name=name, shape=SHAPE, dtype="float32", role=role)


def _three_ops() -> BuiltStep:
    """w' = relu(x + w) in another shape and back, times w."""
    builder = relax.BlockBuilder()
    x, w = (relax.Var(name, relax.TensorType(SHAPE, "float32")) for name in ("x", "w"))
    with builder.function("step", [x, w]):
        with builder.dataflow():
            total = builder.emit(relax.op.add(x, w))
            folded = builder.emit(relax.op.reshape(builder.emit(relax.op.nn.relu(total)), (2, 16)))
            back = builder.emit(relax.op.reshape(folded, SHAPE))
            result = builder.emit_output(relax.Tuple([builder.emit(relax.op.multiply(back, w))]))
        builder.emit_func_output(result)
    return BuiltStep(
        module=builder.get(),
        functions={"step": BuiltFunction(arguments=("x", "w"), results=("w",))},
        tensors={"x": _tensor("x", Role.INPUT), "w": _tensor("w", Role.PARAMETER)},
        initial={"w": np.zeros(SHAPE, np.float32)},
        trained=("w",),
    )


def test_each_op_reads_and_writes_on_its_own_before_fusion_and_a_view_moves_nothing() -> None:
    extracted = extract(_three_ops(), "three")
    assert extracted.traffic is not None
    add, relu, multiply = 3 * NBYTES, 2 * NBYTES, 3 * NBYTES
    assert extracted.traffic.unfused_bytes == add + relu + multiply
    assert len(extracted.graph.functions["step"]) == 1
    assert extracted.traffic.moved_bytes == 3 * NBYTES, "x and w are read once, w is written"


@pytest.mark.parametrize("model", [mlp_model, cnn_model], ids=["mlp", "cnn"])
def test_after_fusion_a_step_moves_what_its_ops_move_and_less_than_before(model: object) -> None:
    extracted = extract(build_step(model(), TrainOptions(batch=BATCH)), "model")  # type: ignore[operator]
    assert extracted.traffic is not None
    graph = extracted.graph
    assert extracted.traffic.moved_bytes == sum(graph.bytes_moved(op) for op in graph.functions["step"])
    assert extracted.traffic.moved_bytes < extracted.traffic.unfused_bytes


def test_it_is_told_in_one_line_and_survives_json() -> None:
    traffic = Traffic(moved_bytes=412_000_000, unfused_bytes=1_100_000_000)
    assert traffic.to_text() == "moves 412MB a step, 1.1GB before fusion"
    assert Traffic.from_json(traffic.to_json()) == traffic
