from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from benchmarks.importing.onnx_models import mlp, model_of
from edgetrain._tvm import relax, shape_of
from edgetrain.errors import UnsupportedError
from edgetrain.model.fold import MAXIMUM_FOLDED_BYTES
from edgetrain.model.importer import import_model
from edgetrain.model.model import Model

node = helper.make_node


def test_parameters_inputs_and_outputs_keep_their_names() -> None:
    model = import_model(mlp(), name="mlp", batch=6)
    assert list(model.parameters) == ["fc0.weight", "fc0.bias", "fc1.weight", "fc1.bias"]
    assert [(i.name, i.shape, i.dtype) for i in model.inputs] == [("x", (6, 4), "float32")]
    assert model.outputs == ("logits",)
    assert [str(p.name) for p in model.function.params] == ["x", *model.parameters]
    assert tuple(int(d) for d in model.function.body.body.ty.fields[0].shape) == (6, 3)


def test_every_bound_variable_remembers_its_onnx_node() -> None:
    model = import_model(mlp(), name="mlp", batch=1)
    assert {"Gemm `fc0`", "Relu `relu0`", "Gemm `fc1`"} == set(model.sources.values())


def test_all_unknown_ops_are_named_in_one_error() -> None:
    model = model_of(
        [
            node("Mystery", ["x"], ["a"], name="first", domain="com.example"),
            node("Relu", ["a"], ["b"], name="fine"),
            node("NoSuchOp", ["b"], ["c"], name="second"),
            node("Riddle", ["c"], ["y"], domain="org.other"),
        ],
        inputs={"x": ["n", 3]},
        outputs=["y"],
        domains=["com.example", "org.other"],
    )
    with pytest.raises(UnsupportedError) as caught:
        import_model(model, name="odd", batch=1)
    message = caught.value.what
    assert message.startswith("3 nodes of `odd` cannot be imported:")
    assert "com.example.Mystery `first`: a custom op of domain `com.example`" in message
    assert "NoSuchOp `second`: no converter for op `NoSuchOp`" in message
    assert "org.other.Riddle `y`" in message
    assert "fine" not in message


def test_a_stock_converter_that_fails_names_its_node() -> None:
    model = model_of([node("Unique", ["x"], ["y"], name="kinds", axis=7)], inputs={"x": ["n", 3]}, outputs=["y"])
    with pytest.raises(UnsupportedError, match="Unique `kinds`: the converter failed"):
        import_model(model, name="model", batch=1)


def test_nodes_that_fail_independently_are_all_named_and_their_readers_are_not() -> None:
    model = model_of(
        [
            node("Einsum", ["x"], ["a"], name="diagonal", equation="ii->i"),
            node("Relu", ["a"], ["a2"], name="reader"),
            node("AveragePool", ["v"], ["b"], name="volume", kernel_shape=[2, 2, 2]),
        ],
        inputs={"x": ["n", 2], "v": ["n", 1, 4, 4, 4]},
        outputs=["a2", "b"],
    )
    with pytest.raises(UnsupportedError) as caught:
        import_model(model, name="model", batch=2)
    assert caught.value.what.startswith("2 nodes")
    assert "diagonal" in caught.value.what
    assert "volume" in caught.value.what
    assert "reader" not in caught.value.what


def test_a_batch_fixed_inside_the_model_is_explained() -> None:
    model = model_of(
        [node("Reshape", ["x", "target"], ["y"], name="view")],
        inputs={"x": ["n", 6]},
        outputs=["y"],
        stored={"target": np.array([1, 6], np.int64)},
    )
    with pytest.raises(UnsupportedError, match=r"Reshape `view`: it reshapes \[4, 6\] to \[1, 6\]"):
        import_model(model, name="model", batch=4)


def test_a_padding_larger_than_memory_is_refused_before_it_is_made() -> None:
    nodes = [helper.make_node("Pad", ["x", "pads"], ["y"], name="border", mode="edge")]
    stored = {"pads": np.array([0, 0, 0, 1 << 31], np.int64)}
    proto = model_of(nodes, inputs={"x": ["n", 3]}, outputs=["y"], stored=stored)
    with pytest.raises(UnsupportedError, match="Pad `border`: it pads axis 1 by 2,147,483,648 elements"):
        import_model(proto, name="padded", batch=1)


def test_shapes_that_contradict_each_other_name_the_node() -> None:
    model = model_of(
        [node("MatMul", ["x", "w"], ["y"], name="product")],
        inputs={"x": ["n", 3]},
        outputs=["y"],
        stored={"w": np.ones((5, 2), np.float32)},
    )
    with pytest.raises(UnsupportedError, match="MatMul `product`: its inputs do not fit together"):
        import_model(model, name="model", batch=1)


def _ops(model: Model) -> list[str]:
    return [str(b.value.op.name) for block in model.function.body.blocks for b in block.bindings if _is_call(b.value)]


def _is_call(expr: Any) -> bool:
    return isinstance(expr, relax.Call)


def _integers(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def test_a_shape_computed_from_the_batch_becomes_a_constant() -> None:
    """Shape → Gather → Unsqueeze → Concat → Reshape, as exporters write `x.view(x.size(0), -1)`."""
    proto = model_of(
        [
            node("Shape", ["x"], ["shape"]),
            node("Gather", ["shape", "zero"], ["batch"], axis=0),
            node("Unsqueeze", ["batch", "axes"], ["batch1"]),
            node("Concat", ["batch1", "rest"], ["target"], axis=0),
            node("Reshape", ["x", "target"], ["y"]),
        ],
        inputs={"x": ["n", 3, 4]},
        outputs=["y"],
        stored={"zero": np.array(0, np.int64), "axes": _integers(0), "rest": _integers(-1)},
    )
    model = import_model(proto, name="view", batch=5)
    assert _ops(model) == ["relax.reshape"]
    assert shape_of(model.function.body.body.ty.fields[0]) == (5, 12)
    assert len(model.rewrites) == 4


def test_a_size_computed_in_floating_point_is_known_too() -> None:
    """Paddle's exporter scales shapes in float32; the factors look like weights until they are cast to sizes."""
    proto = model_of(
        [
            node("Shape", ["x"], ["shape"]),
            node("Cast", ["shape"], ["floats"], to=1),
            node("Mul", ["floats", "factors"], ["scaled"]),
            node("Cast", ["scaled"], ["sizes"], to=7),
            node("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest"),
        ],
        inputs={"x": ["n", 1, 2, 2]},
        outputs=["y"],
        stored={"factors": np.array([1, 1, 2, 3], np.float32)},
    )
    model = import_model(proto, name="resize", batch=1)
    assert dict(model.parameters) == {}
    assert shape_of(model.function.body.body.ty.fields[0]) == (1, 1, 4, 6)


def test_what_only_a_shape_is_read_from_is_left_out_with_its_weights() -> None:
    proto = model_of(
        [
            node("MatMul", ["x", "w"], ["wide"]),
            node("Shape", ["wide"], ["shape"]),
            node("Expand", ["x1", "shape"], ["y"]),
        ],
        inputs={"x": ["n", 3], "x1": ["n", 1]},
        outputs=["y"],
        stored={"w": np.ones((3, 5), np.float32)},
    )
    model = import_model(proto, name="model", batch=2)
    assert _ops(model) == ["relax.broadcast_to"]
    assert dict(model.parameters) == {}
    assert [str(p.name) for p in model.function.params] == ["x", "x1"]


def test_dropout_and_identity_are_dropped_and_reported() -> None:
    proto = model_of(
        [
            node("Identity", ["x"], ["a"], name="first"),
            node("Dropout", ["a"], ["b"], name="second"),
            node("Relu", ["b"], ["c"]),
            node("Identity", ["c"], ["y"], name="third"),
        ],
        inputs={"x": ["n", 3]},
        outputs=["y"],
    )
    model = import_model(proto, name="model", batch=1)
    assert _ops(model) == ["relax.nn.relu"]
    assert [line.split(" dropped")[0] for line in model.rewrites] == [
        "Identity `first`",
        "Dropout `second`",
        "Identity `third`",
    ]


def test_weights_in_constant_nodes_are_parameters() -> None:
    proto = model_of(
        [
            node("Constant", [], ["w"], value=numpy_helper.from_array(np.ones((3, 2), np.float32))),
            node("Constant", [], ["one"], value_float=1.0),
            node("MatMul", ["x", "w"], ["product"]),
            node("Add", ["product", "one"], ["y"]),
        ],
        inputs={"x": ["n", 3]},
        outputs=["y"],
    )
    assert list(import_model(proto, name="model", batch=1).parameters) == ["w"]


def test_a_setting_is_no_parameter_although_it_is_a_float_tensor() -> None:
    proto = model_of(
        [node("Resize", ["x", "", "scales"], ["y"], mode="nearest")],
        inputs={"x": ["n", 1, 2, 2]},
        outputs=["y"],
        stored={"scales": np.array([1, 1, 2, 2], np.float32)},
    )
    assert dict(import_model(proto, name="model", batch=1).parameters) == {}


def test_weights_that_are_reshaped_on_the_way_stay_parameters() -> None:
    proto = model_of(
        [node("Transpose", ["w"], ["t"]), node("MatMul", ["x", "t"], ["y"])],
        inputs={"x": ["n", 3]},
        outputs=["y"],
        stored={"w": np.ones((2, 3), np.float32)},
    )
    model = import_model(proto, name="model", batch=1)
    assert {n: a.shape for n, a in model.parameters.items()} == {"w": (2, 3)}
    assert _ops(model) == ["relax.permute_dims", "relax.matmul"]


def test_a_large_constant_is_made_by_the_program_instead_of_stored() -> None:
    elements = MAXIMUM_FOLDED_BYTES // 4 + 1
    proto = model_of(
        [node("ConstantOfShape", ["shape"], ["zeros"]), node("Add", ["x", "zeros"], ["y"])],
        inputs={"x": ["n", elements]},
        outputs=["y"],
        stored={"shape": _integers(elements)},
    )
    assert _ops(import_model(proto, name="model", batch=1)) == ["relax.full", "relax.add"]


def test_nodes_and_weights_nobody_reads_are_left_out() -> None:
    proto = model_of(
        [node("Relu", ["x"], ["y"]), node("MatMul", ["x", "w"], ["unused"])],
        inputs={"x": ["n", 3]},
        outputs=["y"],
        stored={"w": np.ones((3, 2), np.float32)},
    )
    model = import_model(proto, name="model", batch=1)
    assert _ops(model) == ["relax.nn.relu"]
    assert dict(model.parameters) == {}


def test_the_given_model_is_not_changed() -> None:
    proto = mlp()
    before = proto.SerializeToString()
    import_model(proto, name="mlp", batch=4)
    assert proto.SerializeToString() == before


def test_a_reshape_to_the_fixed_batch_of_one_follows_the_new_batch() -> None:
    proto = model_of(
        [node("Reshape", ["x", "target"], ["y"])],
        inputs={"x": [1, 2, 3]},
        outputs=["y"],
        stored={"target": _integers(1, -1)},
    )
    model = import_model(proto, name="model", batch=4)
    assert shape_of(model.function.body.body.ty.fields[0]) == (4, 6)


def test_an_output_that_no_node_makes_is_named() -> None:
    proto = model_of([node("Relu", ["x"], ["y"])], inputs={"x": ["n", 3]}, outputs=["y", "z"])
    with pytest.raises(UnsupportedError, match="output `z`: no node makes it"):
        import_model(proto, name="model", batch=1)
