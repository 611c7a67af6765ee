"""Claims about LoRA as a rewrite of the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.models import small_networks as models
from edgetrain.errors import UsageError
from edgetrain.graph.adapters import Adapter
from edgetrain.graph.lora import attach_lora
from edgetrain.graph.options import LoraOptions
from edgetrain.graph.rewrite import calls
from edgetrain.model.importer import import_model
from edgetrain.model.model import Model
from edgetrain.model.onnx_build import GraphWriter


def imported(name: str) -> Model:
    return import_model(getattr(models, name)(), name=name, batch=2)


def weights_of(adapters: tuple[Adapter, ...]) -> list[str]:
    return [a.weight for a in adapters]


def test_every_linear_weight_gets_an_adapter_and_biases_and_norms_do_not() -> None:
    model, adapters = attach_lora(imported("transformer"), LoraOptions(rank=2))
    expected = ["query", "key", "value", "attention", "expand", "contract", "head"]
    assert weights_of(adapters) == [f"{n}.weight" for n in expected]
    assert set(model.parameters) - set(imported("transformer").parameters) == {
        n for a in adapters for n in (a.down, a.up)
    }


def test_grouped_convolutions_get_none() -> None:
    _, adapters = attach_lora(imported("mobilenet"), LoraOptions())
    assert weights_of(adapters)
    assert not [w for w in weights_of(adapters) if "depthwise" in w]


def test_globs_choose_the_targets() -> None:
    _, adapters = attach_lora(imported("transformer"), LoraOptions(targets=("query.*", "val*")))
    assert weights_of(adapters) == ["query.weight", "value.weight"]


def test_a_weight_that_is_trained_whole_gets_none() -> None:
    _, adapters = attach_lora(imported("mlp"), LoraOptions(), whole=["head.weight"])
    assert weights_of(adapters) == ["first.weight", "second.weight"]


def test_targets_that_match_nothing_are_answered_with_what_could() -> None:
    with pytest.raises(UsageError, match=r"\['nothing'\] match no weight") as caught:
        attach_lora(imported("mlp"), LoraOptions(targets=("nothing",)))
    assert "`first.weight`" in caught.value.fix


def test_shapes_are_those_of_peft_whatever_the_weights_layout() -> None:
    model, adapters = attach_lora(imported("transformer"), LoraOptions(rank=2))
    by_weight = {a.weight: a for a in adapters}
    for weight, transposed in (("expand.weight", True), ("head.weight", False)):
        adapter = by_weight[weight]
        inputs, outputs = model.parameters[weight].shape if transposed else model.parameters[weight].shape[::-1]
        assert adapter.transposed is transposed
        assert model.parameters[adapter.down].shape == (2, inputs)
        assert model.parameters[adapter.up].shape == (outputs, 2)


def test_a_convolutions_adapter_is_a_kernel_of_its_own_and_a_pointwise_one() -> None:
    model, adapters = attach_lora(imported("batch_norm_cnn"), LoraOptions(rank=2, targets=("conv1.*",)))
    (adapter,) = adapters
    assert model.parameters[adapter.down].shape == (2, 8, 3, 3)
    assert model.parameters[adapter.up].shape == (12, 2, 1, 1)


def test_a_rank_above_the_weights_own_is_cut() -> None:
    _, adapters = attach_lora(imported("mlp"), LoraOptions(rank=100))
    assert {a.weight: a.rank for a in adapters} == {"first.weight": 13, "second.weight": 11, "head.weight": 6}


def test_the_seed_decides_a_and_b_is_zero() -> None:
    def matrices(seed: int, targets: tuple[str, ...] = ("*",)) -> dict[str, Any]:
        model, _ = attach_lora(imported("mlp"), LoraOptions(seed=seed, targets=targets))
        return {n: a for n, a in model.parameters.items() if n.startswith("lora.")}

    first, again, other = matrices(0), matrices(0), matrices(1)
    for name, value in first.items():
        np.testing.assert_array_equal(value, again[name])
        assert np.any(value != other[name]) == name.startswith("lora.A:")
        assert np.any(value) == name.startswith("lora.A:")
    alone = matrices(0, ("head.*",))
    np.testing.assert_array_equal(alone["lora.A:head.weight"], first["lora.A:head.weight"])


def shared_weight(*, also_added: bool) -> Any:
    """x·W·W, and with `also_added` W is a term of a sum besides."""
    writer = GraphWriter()
    weight = writer.weight("shared", np.eye(4, dtype=np.float32))
    x = writer.node("MatMul", [writer.node("MatMul", ["image", weight], "once"), weight], "twice")
    if also_added:
        x = writer.node("Add", [x, weight], "sum")
    writer.node("Relu", [x], "logits")
    return import_model(writer.finish("shared", image=(4,), classes=4), name="shared", batch=4)


def test_every_use_of_a_shared_weight_goes_through_one_adapter() -> None:
    model, adapters = attach_lora(shared_weight(also_added=False), LoraOptions(rank=2))
    assert weights_of(adapters) == ["shared"]
    assert sum(call.op.name == "relax.matmul" for _, call in calls(model)) == 2 * 3


def test_a_weight_with_a_use_that_no_adapter_can_follow_is_left_alone() -> None:
    with pytest.raises(UsageError, match="match no weight"):
        attach_lora(shared_weight(also_added=True), LoraOptions(rank=2))


def test_nodes_keep_their_names_for_error_messages() -> None:
    before = imported("transformer")
    after, _ = attach_lora(before, LoraOptions())
    named = {before.sources[str(variable.name)] for variable, _ in calls(before)}
    assert named <= set(after.sources.values())
