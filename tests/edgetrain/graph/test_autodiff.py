from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from benchmarks.importing.onnx_models import model_of
from edgetrain._tvm import Target, relax, runtime, shape_of, tvm
from edgetrain.errors import UnsupportedError
from edgetrain.graph.autodiff import Tape, differentiate, emit_forward, missing_gradients, op_name
from edgetrain.model.importer import import_model
from edgetrain.model.model import Model
from tests.edgetrain.graph.small_models import cnn_model, mlp_model, tied_model


class _Emitted:
    """A function `gradients(params…, cotangent) -> (output, gradients…)` of a model."""

    def __init__(self, model: Model, trained: tuple[str, ...]) -> None:
        self.order: list[str] = []
        builder = relax.BlockBuilder()
        variables = {str(p.name): relax.Var(str(p.name), p.ty) for p in model.function.params}
        arguments = {p: variables[str(p.name)] for p in model.function.params}
        output_type = model.function.body.body.ty.fields[0]
        cotangent = relax.Var("cotangent", output_type)
        gradients: dict[str, Any] = {}

        def on_gradient(name: str, gradient: Any) -> None:
            self.order.append(name)
            gradients[name] = gradient

        with builder.function("gradients", [*variables.values(), cotangent]):
            with builder.dataflow():
                self.tape: Tape = emit_forward(
                    builder, model.function, arguments, model.sources, training_batchnorm=True
                )
                differentiate(
                    builder,
                    self.tape,
                    output=self.tape.outputs[0],
                    output_gradient=cotangent,
                    trained={variables[n]: n for n in trained},
                    on_gradient=on_gradient,
                )
                results = [self.tape.outputs[0], *gradients.values()]
                returned = builder.emit_output(relax.Tuple(results))
            builder.emit_func_output(returned)
        self.variables = variables
        self.module = relax.transform.DeadCodeElimination(["gradients"])(builder.get())

    def calls(self) -> list[str]:
        """What the function computes, by op or kernel name."""
        bindings = [b for block in self.module["gradients"].body.blocks for b in block.bindings]
        return [op_name(b.value) for b in bindings if isinstance(b.value, relax.Call)]

    def machine(self) -> Any:
        executable = tvm.compile(self.module, target=Target({"kind": "llvm"}))
        return relax.VirtualMachine(executable, tvm.cpu())["gradients"]


def test_a_frozen_prefix_emits_no_backward_ops() -> None:
    whole = _Emitted(cnn_model(), ("conv0.weight", "head.weight", "head.bias")).calls()
    head = _Emitted(cnn_model(), ("head.weight", "head.bias")).calls()
    assert any("conv2d_weight_gradient" in name for name in whole)
    assert any("max_pool2d_gradient" in name for name in whole)
    assert not any("gradient" in name for name in head)
    assert head.count("relax.nn.conv2d") == 2


def test_no_gradient_is_emitted_for_the_data() -> None:
    calls = _Emitted(cnn_model(), ("conv0.weight",)).calls()
    assert sum("conv2d_data_gradient" in name for name in calls) == 1, "only through the second convolution"


def test_gradients_arrive_from_the_output_back() -> None:
    names = ("fc0.weight", "fc0.bias", "fc1.weight", "fc1.bias")
    order = _Emitted(mlp_model(), names).order
    assert set(order[:2]) == {"fc1.weight", "fc1.bias"}
    assert set(order[2:]) == {"fc0.weight", "fc0.bias"}


@pytest.mark.compile
@pytest.mark.parametrize("seed", [0, 1])
def test_a_parameter_read_several_times_gets_the_sum_of_its_gradients(seed: int) -> None:
    model = tied_model()
    emitted = _Emitted(model, ("w",))
    assert emitted.order == ["w"]
    rng = np.random.default_rng(seed)
    x, dy = rng.standard_normal((2, 4)).astype(np.float32), rng.standard_normal((2, 3)).astype(np.float32)
    w = model.parameters["w"].astype(np.float64)
    _, gradient = emitted.machine()(*(runtime.tensor(v.astype(np.float32)) for v in (x, w, dy)))
    # y = x W Wᵀ W: the product rule, one term for each place W stands in.
    first = x.T @ (dy @ w.T @ w)
    second = (dy @ w.T).T @ (x @ w)
    third = w @ w.T @ x.T @ dy
    np.testing.assert_allclose(gradient.numpy(), first + second + third, rtol=1e-4, atol=1e-4)


def _with_unknown_gradients() -> Model:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
        helper.make_node("Mod", ["a", "m"], ["b"], name="rest", fmod=1),
        helper.make_node("Mod", ["b", "m"], ["c"], name="remainder", fmod=1),
        helper.make_node("MatMul", ["c", "v"], ["y"], name="last"),
    ]
    stored = {
        "w": np.ones((3, 3), np.float32),
        "v": np.ones((3, 3), np.float32),
        "m": np.float32(2.0),
    }
    proto = model_of(nodes, inputs={"x": ["n", 3]}, outputs=["y"], stored=stored)
    return import_model(proto, name="model", batch=1)


def test_all_ops_without_a_gradient_are_named_with_their_nodes() -> None:
    with pytest.raises(UnsupportedError) as caught:
        _Emitted(_with_unknown_gradients(), ("w", "v"))
    assert caught.value.what.startswith("2 ops between the trained parameters and the loss have no gradient:")
    assert "Mod `rest`" in caught.value.what
    assert "Mod `remainder`" in caught.value.what
    assert caught.value.fix == (
        "freeze what comes before them (`w`) and train the tensor after them: "
        "`update.mode=names 'update.names=[\"v\"]'`; or replace them in the model"
    )


def test_where_nothing_comes_after_an_op_without_a_gradient_it_must_be_replaced() -> None:
    with pytest.raises(UnsupportedError) as caught:
        _Emitted(_with_unknown_gradients(), ("w",))
    assert caught.value.fix == "replace them in the model: everything trained (`w`) comes before them"


def test_ops_without_a_gradient_before_the_trained_parameters_do_not_matter() -> None:
    emitted = _Emitted(_with_unknown_gradients(), ("v",))
    assert emitted.order == ["v"]
    assert missing_gradients(emitted.tape, [emitted.variables["v"]], emitted.tape.outputs[0]) == []


def test_a_parameter_the_output_does_not_depend_on_gets_no_gradient() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], name="used"),
        helper.make_node("MatMul", ["x", "v"], ["z"], name="second_output"),
    ]
    stored = {"w": np.ones((3, 2), np.float32), "v": np.ones((3, 2), np.float32)}
    proto = model_of(nodes, inputs={"x": ["n", 3]}, outputs=["y", "z"], stored=stored)
    assert _Emitted(import_model(proto, name="two", batch=1), ("w", "v")).order == ["w"]


def test_comparisons_and_integers_end_the_path_to_the_loss() -> None:
    """ArgMax of a trained value is an integer: no gradient, and none is missed."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
        helper.make_node("Greater", ["a", "zero"], ["mask"], name="compare"),
        helper.make_node("Not", ["mask"], ["inverted"], name="not"),
        helper.make_node("Where", ["inverted", "zero", "a"], ["y"], name="choose"),
    ]
    stored = {"w": np.ones((3, 2), np.float32), "zero": np.float32(0.0)}
    proto = model_of(nodes, inputs={"x": ["n", 3]}, outputs=["y"], stored=stored)
    assert _Emitted(import_model(proto, name="masked", batch=1), ("w",)).order == ["w"]


def test_the_tape_holds_the_running_statistics_of_batch_norm_while_training() -> None:
    emitted = _Emitted(cnn_model(), ("conv0.weight",))
    updated = [str(variable.name) for variable, _ in emitted.tape.state_updates]
    assert updated == ["norm0.mean", "norm0.variance", "norm1.mean", "norm1.variance"]
    assert all(shape_of(v) == shape_of(new) for v, new in emitted.tape.state_updates)
