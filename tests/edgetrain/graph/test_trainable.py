from __future__ import annotations

import pytest

from edgetrain.errors import UsageError
from edgetrain.graph.trainable import SELECTORS, running_statistics, select_trainable
from tests.edgetrain.graph.small_models import cnn_model, mlp_model, tied_model

CNN, CNN_BIASES, MLP = cnn_model(), cnn_model(batch_norm=False), mlp_model()


def test_running_statistics_are_measured_not_learned() -> None:
    assert running_statistics(CNN) == {"norm0.mean", "norm0.variance", "norm1.mean", "norm1.variance"}
    assert running_statistics(MLP) == frozenset()


def test_full_trains_everything_but_running_statistics() -> None:
    assert select_trainable(MLP, "full", ()) == ("fc0.weight", "fc0.bias", "fc1.weight", "fc1.bias")
    chosen = select_trainable(CNN, "full", ())
    assert set(chosen) == set(CNN.parameters) - running_statistics(CNN)
    assert list(chosen) == [n for n in CNN.parameters if n in chosen], "in the model's order"


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (CNN, ("head.weight", "head.bias")),
        (CNN_BIASES, ("head.weight", "head.bias")),
        (MLP, ("fc1.weight", "fc1.bias")),
    ],
    ids=["cnn", "cnn_biases", "mlp"],
)
def test_head_is_the_last_layer_with_its_bias(model: object, expected: tuple[str, ...]) -> None:
    assert select_trainable(model, "head", ()) == expected  # type: ignore[arg-type]


def test_head_of_a_model_with_one_shared_weight_is_that_weight() -> None:
    assert select_trainable(tied_model(), "head", ()) == ("w",)


def test_bias_trains_what_is_only_added() -> None:
    assert select_trainable(MLP, "bias", ()) == ("fc0.bias", "fc1.bias")
    assert select_trainable(CNN, "bias", ()) == ("norm0.bias", "norm1.bias", "head.bias")
    assert select_trainable(CNN_BIASES, "bias", ()) == ("conv0.bias", "conv1.bias", "head.bias")


def test_names_are_globs() -> None:
    assert select_trainable(CNN, "names", ("conv*",)) == ("conv0.weight", "conv1.weight")
    assert select_trainable(CNN, "names", ("head.bias", "*0.weight")) == ("conv0.weight", "head.bias")


def test_names_never_select_running_statistics() -> None:
    assert select_trainable(CNN, "names", ("norm0.*",)) == ("norm0.scale", "norm0.bias")


def test_a_selection_of_nothing_is_a_usage_error_that_repeats_the_globs() -> None:
    with pytest.raises(UsageError, match="selects none") as caught:
        select_trainable(MLP, "names", ("convolution*",))
    assert "convolution*" in caught.value.why
    with pytest.raises(UsageError, match="selects none"):
        select_trainable(tied_model(), "bias", ())


def test_an_unknown_mode_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"unknown update\.mode `everything`") as caught:
        select_trainable(MLP, "everything", ())
    assert all(mode in caught.value.fix for mode in SELECTORS)
