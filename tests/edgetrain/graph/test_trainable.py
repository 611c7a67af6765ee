from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.models import small_networks as models
from edgetrain.errors import UsageError
from edgetrain.graph.adapted import adapt
from edgetrain.graph.options import LoraOptions, TrainOptions
from edgetrain.graph.trainable import SELECTORS, layers, learnable, running_statistics, select_trainable
from edgetrain.model.importer import import_model
from edgetrain.model.model import Model
from edgetrain.model.onnx_build import GraphWriter
from tests.edgetrain.graph.small_models import cnn_model, mlp_model, tied_model

CNN, CNN_BIASES, MLP = cnn_model(), cnn_model(batch_norm=False), mlp_model()
BATCH = 2
DEEP_MLP, TRANSFORMER, DEEP_CNN, MOBILENET = (
    import_model(proto, name="model", batch=BATCH)
    for proto in (models.mlp(), models.transformer(), models.batch_norm_cnn(), models.mobilenet())
)


def chosen(model: Model, mode: str, **settings: Any) -> tuple[str, ...]:
    return select_trainable(model, TrainOptions(batch=BATCH, update_mode=mode, **settings))


def test_running_statistics_are_measured_not_learned() -> None:
    assert running_statistics(CNN) == {"norm0.mean", "norm0.variance", "norm1.mean", "norm1.variance"}
    assert running_statistics(MLP) == frozenset()


def test_full_trains_everything_but_running_statistics() -> None:
    assert chosen(MLP, "full") == ("fc0.weight", "fc0.bias", "fc1.weight", "fc1.bias")
    names = chosen(CNN, "full")
    assert set(names) == set(CNN.parameters) - running_statistics(CNN)
    assert list(names) == [n for n in CNN.parameters if n in names], "in the model's order"


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (CNN, ("head.weight", "head.bias")),
        (CNN_BIASES, ("head.weight", "head.bias")),
        (MLP, ("fc1.weight", "fc1.bias")),
    ],
    ids=["cnn", "cnn_biases", "mlp"],
)
def test_head_is_the_last_layer_with_its_bias(model: Model, expected: tuple[str, ...]) -> None:
    assert chosen(model, "head") == expected


def test_head_of_a_model_with_one_shared_weight_is_that_weight() -> None:
    assert chosen(tied_model(), "head") == ("w",)


def test_bias_trains_what_is_only_added() -> None:
    assert chosen(MLP, "bias") == ("fc0.bias", "fc1.bias")
    assert chosen(CNN, "bias") == ("norm0.bias", "norm1.bias", "head.bias")
    assert chosen(CNN_BIASES, "bias") == ("conv0.bias", "conv1.bias", "head.bias")


def test_names_are_globs() -> None:
    assert chosen(CNN, "names", update_names=("conv*",)) == ("conv0.weight", "conv1.weight")
    assert chosen(CNN, "names", update_names=("head.bias", "*0.weight")) == ("conv0.weight", "head.bias")


def test_names_never_select_running_statistics() -> None:
    assert chosen(CNN, "names", update_names=("norm0.*",)) == ("norm0.scale", "norm0.bias")


def test_a_selection_of_nothing_is_a_usage_error_that_repeats_the_globs() -> None:
    with pytest.raises(UsageError, match="selects none") as caught:
        chosen(MLP, "names", update_names=("convolution*",))
    assert "convolution*" in caught.value.why
    with pytest.raises(UsageError, match="selects none"):
        chosen(tied_model(), "bias")


def test_an_unknown_mode_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"unknown update\.mode `everything`") as caught:
        chosen(MLP, "everything")
    assert all(mode in caught.value.fix for mode in SELECTORS)


@pytest.mark.parametrize("model", [DEEP_MLP, TRANSFORMER, DEEP_CNN, MOBILENET])
def test_every_learnable_parameter_is_in_one_layer(model: Model) -> None:
    names = [n for layer in layers(model) for n in layer]
    assert sorted(names) == sorted(learnable(model))


def test_last_k_adds_layer_after_layer() -> None:
    dense = [{f"{n}.weight", f"{n}.bias"} for n in ("head", "second", "first")]
    for count in (1, 2, 3, 9):
        assert set(chosen(DEEP_MLP, "last-k", update_last=count)) == set().union(*dense[:count])


def test_a_norm_belongs_to_the_convolution_before_it() -> None:
    expected = {"conv2.weight", "norm2.scale", "norm2.bias", "head.weight", "head.bias"}
    assert set(chosen(DEEP_CNN, "last-k", update_last=2)) == expected


def test_last_k_of_no_layer_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"update\.last = 0"):
        chosen(MLP, "last-k", update_last=0)


def test_norms_are_scales_and_shifts_without_statistics() -> None:
    assert set(chosen(DEEP_CNN, "norms")) == {f"norm{i}.{s}" for i in range(3) for s in ("scale", "bias")}
    assert set(chosen(TRANSFORMER, "norms")) == {f"norm{i}.{s}" for i in range(2) for s in ("scale", "bias")}
    with pytest.raises(UsageError, match="'norms' selects none"):
        chosen(MLP, "norms")


def written_out_layer_norm() -> Model:
    """LayerNormalization as exporters wrote it before opset 17, then a dense layer."""
    writer = GraphWriter()
    mean = writer.node("ReduceMean", ["image"], "mean", axes=[-1])
    centred = writer.node("Sub", ["image", mean], "centred")
    two, epsilon = (writer.weight(n, np.array(v, np.float32)) for n, v in (("two", 2.0), ("epsilon", 1e-5)))
    variance = writer.node("ReduceMean", [writer.node("Pow", [centred, two], "squares")], "variance", axes=[-1])
    root = writer.node("Sqrt", [writer.node("Add", [variance, epsilon], "safe")], "root")
    x = writer.node("Div", [centred, root], "normal")
    x = writer.node("Mul", [x, writer.weight("norm.scale", np.ones(4, np.float32))], "scaled")
    x = writer.node("Add", [x, writer.weight("norm.shift", np.zeros(4, np.float32))], "shifted")
    x = writer.node("Mul", [x, writer.weight("gate", np.ones(4, np.float32))], "gated")
    writer.dense(x, np.ones((3, 4), np.float32), np.zeros(3, np.float32), "logits", layer="head")
    return import_model(writer.finish("norm", image=(4,), classes=3), name="norm", batch=BATCH)


def test_norms_written_out_op_by_op_are_found_and_other_scales_are_not() -> None:
    assert chosen(written_out_layer_norm(), "norms") == ("norm.scale", "norm.shift")


def test_lora_trains_its_matrices_and_what_is_named_beside_them() -> None:
    options = TrainOptions(
        batch=BATCH,
        update_mode="lora",
        update_names=("head.*",),
        lora=LoraOptions(rank=2, targets=("first.*", "head.*")),
    )
    adapted = adapt(DEEP_MLP, options)
    assert adapted.trained == ("head.weight", "head.bias", "lora.A:first.weight", "lora.B:first.weight")
    assert [a.weight for a in adapted.adapters] == ["first.weight"]
