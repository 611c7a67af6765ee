"""Claims about the names of a file's tensors in a graph: whatever the file calls them, they are nobody else's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.graph import ir
from edgetrain.graph.adapters import Adapter, RowDelta
from edgetrain.graph.optimizers import ACCUMULATED, OPTIMIZERS
from edgetrain.graph.options import OptimizerOptions
from edgetrain.model.tensor_names import graph_name, is_own_name, onnx_name
from edgetrain.planner.plan import scratch_name

ADAPTER = Adapter(weight="w", rank=1, alpha=1.0, transposed=False)
OWN = (
    *(ir.LABELS, ir.LOSS, ir.LEARNING_RATE, ir.FIRST_CORRECTION, ir.SECOND_CORRECTION, ir.evaluated("y")),
    *(f"{function}.0.0" for function in (ir.STEP, ir.EVALUATE, ir.APPLY)),
    *("constant.0123456789abcdef", f"{ACCUMULATED}:w", *ADAPTER.tensors),
    scratch_name("0012.fused_matmul", 0),
    *RowDelta(weight="w", rows=(0,), axis=0).tensors,
)
WORDS = st.sampled_from(["train", "evaluate", "step", "momentum", "file", "constant", "w", ".", ":", "0"])


@pytest.mark.parametrize("name", OWN)
def test_every_name_that_a_graph_makes_up_is_its_own(name: str) -> None:
    assert is_own_name(name)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_the_state_of_every_optimizer_has_an_own_name(kind: str, momentum: float) -> None:
    optimizer = OPTIMIZERS[kind](OptimizerOptions(kind=kind, momentum=momentum))
    assert all(is_own_name(f"{prefix}:w") for prefix in optimizer.state)
    assert all(map(is_own_name, optimizer.scalars))


@pytest.mark.parametrize("name", ["w", "layer1.weight", "dense/kernel:0", "training.x", "x", "images", ""])
def test_other_names_stay(name: str) -> None:
    assert graph_name(name) == name


@given(st.lists(WORDS, max_size=5).map("".join), st.lists(WORDS, max_size=5).map("".join))
def test_a_name_comes_back_and_no_two_become_one(first: str, second: str) -> None:
    assert onnx_name(graph_name(first)) == first
    assert (graph_name(first) == graph_name(second)) == (first == second)


@given(st.lists(WORDS, max_size=5).map("".join))
def test_no_file_has_a_name_of_the_graphs_own(name: str) -> None:
    found = graph_name(name)
    assert not is_own_name(found) or found == f"file:{name}"
