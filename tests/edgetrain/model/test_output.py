"""Which output is trained, and that the others do not get in its way."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks.importing.onnx_models import FLOAT, model_of
from edgetrain.errors import UnsupportedError, UsageError
from edgetrain.model.head import replace_head
from edgetrain.model.importer import import_model
from edgetrain.model.output import trained_output

node = helper.make_node
WEIGHT = np.array([[0.5, 2.0], [1.0, -1.0], [0.25, 0.5]], np.float32)
_TYPES = {"label": TensorProto.INT64, "places": TensorProto.INT64, "is_first": TensorProto.BOOL}


def _model(nodes: list[Any], outputs: list[str], **stored: Any) -> onnx.ModelProto:
    scores = node("MatMul", ["x", "w"], ["scores"], name="dense")
    model = model_of([scores, *nodes], inputs={"x": ["n", 3]}, outputs=outputs, stored={"w": WEIGHT, **stored})
    for output in model.graph.output:
        output.type.tensor_type.elem_type = _TYPES.get(output.name, FLOAT)
    return model


LABEL = node("ArgMax", ["scores"], ["label"], axis=1, keepdims=0)
SOFTMAX = node("Softmax", ["scores"], ["shares"])


@pytest.mark.parametrize(
    ("nodes", "outputs", "chosen"),
    [
        ([LABEL], ["label", "scores"], "scores"),
        ([LABEL, SOFTMAX], ["shares", "label", "scores"], "shares"),
        ([LABEL, node("Cast", ["label"], ["named"], to=FLOAT), SOFTMAX], ["named", "shares"], "shares"),
        ([node("TopK", ["scores", "one"], ["best", "places"])], ["places", "best"], "best"),
        ([node("Identity", ["x"], ["input"])], ["input", "scores"], "scores"),
        ([node("Exp", ["w"], ["weights"])], ["weights", "scores"], "scores"),
        ([node("Round", ["scores"], ["rounded"])], ["rounded", "scores"], "scores"),
        ([node("Cast", ["scores"], ["wide"], to=TensorProto.DOUBLE)], ["wide", "scores"], "wide"),
        ([node("Resize", ["x", "", "factors"], ["larger"])], ["larger", "scores"], "scores"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) and isinstance(value[0], str) else "",
)
def test_the_first_output_that_a_gradient_reaches_is_chosen(nodes: list[Any], outputs: list[str], chosen: str) -> None:
    constants = {"one": np.array([1]), "factors": np.array([1.0, 2.0], np.float32)}
    assert trained_output(_model(nodes, outputs, **constants)) == chosen


def test_weights_inside_of_branches_count() -> None:
    branches = {
        f"{name}_branch": helper.make_graph(
            [node("Mul", ["x", f"{name}_w"], [name])],
            name,
            [],
            [helper.make_empty_tensor_value_info(name)],
            [helper.make_tensor(f"{name}_w", FLOAT, [3], [1.0, 2.0, 3.0])],
        )
        for name in ("then", "else")
    }
    nodes = [LABEL, node("If", ["chosen"], ["either"], **branches)]
    assert trained_output(_model(nodes, ["label", "either"], chosen=np.array(True))) == "either"


def test_weights_stored_as_whole_numbers_count() -> None:
    nodes = [LABEL, node("MatMulInteger", ["bytes", "q"], ["sums"]), node("Cast", ["sums"], ["floats"], to=FLOAT)]
    model = _model(nodes, ["label", "floats"], q=np.ones((3, 2), np.int8))
    model.graph.node.insert(0, node("Cast", ["x"], ["bytes"], to=TensorProto.UINT8))
    assert trained_output(model) == "floats"


def test_a_named_output_is_taken_before_earlier_ones() -> None:
    assert trained_output(_model([SOFTMAX], ["shares", "scores"]), "scores") == "scores"


def test_a_name_that_is_no_output_is_refused_with_the_outputs() -> None:
    with pytest.raises(UsageError, match="the model has no output `logits`") as caught:
        trained_output(_model([SOFTMAX], ["shares", "scores"]), "logits")
    assert caught.value.why == "its outputs are `shares`, `scores`"


def test_a_named_output_without_gradient_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(UsageError, match="the output `label` cannot be trained") as caught:
        trained_output(_model([LABEL], ["label", "scores"]), "label")
    assert "`model.output` to `scores`" in caught.value.fix


def test_a_model_of_labels_alone_is_unsupported_and_its_outputs_are_named() -> None:
    first = node("Equal", ["label", "zero"], ["is_first"])
    with pytest.raises(UnsupportedError, match="no output of the model can be trained") as caught:
        trained_output(_model([LABEL, first], ["label", "is_first"], zero=np.array(0)))
    assert "`label`, `is_first`" in caught.value.why


def test_the_trained_output_comes_first_in_the_imported_model() -> None:
    model = import_model(_model([LABEL], ["label", "scores"]), name="m", batch=2, output="scores")
    assert model.outputs == ("scores", "label")
    assert [str(t.dtype) for t in model.function.body.body.ty.fields] == ["float32", "int64"]


def test_an_output_that_cannot_be_imported_is_left_out_and_said_so() -> None:
    proto = _model([node("Mystery", ["scores"], ["riddle"], name="sphinx")], ["riddle", "scores"])
    model = import_model(proto, name="m", batch=2, output="scores")
    assert model.outputs == ("scores",)
    assert any("output `riddle`" in line and "Mystery `sphinx`" in line for line in model.rewrites)


def test_an_output_that_is_another_one_again_is_left_out() -> None:
    proto = _model(
        [node("Identity", ["scores"], ["again"]), node("Identity", ["x"], ["fed"])], ["again", "scores", "fed"]
    )
    assert import_model(proto, name="m", batch=2, output="scores").outputs == ("scores",)


def test_the_trained_output_itself_must_import() -> None:
    proto = _model([node("Mystery", ["scores"], ["riddle"], name="sphinx")], ["riddle", "scores"])
    with pytest.raises(UnsupportedError, match="Mystery `sphinx`"):
        import_model(proto, name="m", batch=2, output="riddle")


def test_without_a_choice_every_output_must_import() -> None:
    proto = _model([node("Mystery", ["scores"], ["riddle"], name="sphinx")], ["scores", "riddle"])
    with pytest.raises(UnsupportedError, match="Mystery `sphinx`"):
        import_model(proto, name="m", batch=2)


def test_the_head_is_looked_for_behind_the_trained_output() -> None:
    replaced = replace_head(_model([LABEL], ["label", "scores"]), 5, 0, output="scores")
    weight = next(i for i in replaced.graph.initializer if i.name == "w")
    assert list(weight.dims) == [3, 5]
