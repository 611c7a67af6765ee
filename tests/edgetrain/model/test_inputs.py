from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from onnx import TensorProto, helper

from edgetrain.errors import ModelError
from edgetrain.model.inputs import BoundInputs, bind_inputs

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def _bind(
    inputs: Mapping[str, Sequence[int | str | None]],
    *,
    batch: int = 2,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dtype: int = FLOAT,
) -> BoundInputs:
    values = [helper.make_tensor_value_info(n, dtype, list(s)) for n, s in inputs.items()]
    return bind_inputs(helper.make_graph([], "g", values, []), frozenset(), batch=batch, shapes=shapes)


def test_a_symbolic_first_dimension_is_the_batch() -> None:
    assert _bind({"x": ["n", 3]}, batch=5).shapes == {"x": (5, 3)}


def test_the_batch_is_the_batch_wherever_its_name_appears() -> None:
    bound = _bind({"x": ["batch", 8], "state": [2, "batch", 4]}, batch=3)
    assert bound.shapes == {"x": (3, 8), "state": (2, 3, 4)}


def test_the_only_unnamed_dimension_of_a_state_is_the_batch() -> None:
    bound = _bind({"x": [None, 8], "state": [2, None, 4]}, batch=3)
    assert bound.shapes == {"x": (3, 8), "state": (2, 3, 4)}


def test_given_shapes_settle_unknown_dimensions() -> None:
    assert _bind({"x": ["n", "length"]}, shapes={"x": (2, 7)}).shapes == {"x": (2, 7)}


def test_a_list_with_every_dimension_is_the_whole_shape() -> None:
    """Recipes leave the batch out and the compiler puts it first, so all dimensions come with one too many."""
    assert _bind({"x": ["n", 3], "s": [2, "k", 4]}, shapes={"s": (2, 2, 1, 4)}).shapes["s"] == (2, 1, 4)


def test_a_scalar_input_takes_its_value_and_is_not_fed() -> None:
    bound = _bind({"x": ["n", 3], "rate": []}, shapes={"rate": (2, 16000)}, dtype=INT64)
    assert set(bound.shapes) == {"x"}
    np.testing.assert_array_equal(bound.values["rate"], np.array(16000, np.int64))
    assert "input `rate` is fixed at 16000" in bound.rewrites


def test_a_batch_fixed_at_one_is_replaced_and_reported() -> None:
    bound = _bind({"x": [1, 3]}, batch=4)
    assert bound.shapes == {"x": (4, 3)}
    assert bound.rebound
    assert bound.rewrites == ("the batch, fixed at 1 in the file, became 4",)


def test_a_one_beside_a_symbolic_batch_is_no_batch() -> None:
    bound = _bind({"x": ["n", 3], "h": [1, 1, 8]}, batch=4)
    assert bound.shapes["h"] == (1, 1, 8)
    assert not bound.rebound


def test_a_fixed_batch_that_contradicts_is_named_with_both_numbers() -> None:
    assert _bind({"x": [4, 3]}, batch=4).shapes == {"x": (4, 3)}
    with pytest.raises(ModelError, match="input `x` has a fixed batch of 4, not 8") as caught:
        _bind({"x": [4, 3]}, batch=8)
    assert "`train.batch=4`" in caught.value.fix
    with pytest.raises(ModelError, match="a fixed batch of 2147483648") as caught:
        _bind({"x": [2**31, 3]}, batch=8)
    assert "train.batch" not in caught.value.fix  # there is no such batch


def test_every_input_with_unknown_dimensions_is_listed() -> None:
    with pytest.raises(ModelError) as caught:
        _bind({"a": ["n", "length", 3], "b": ["n", 3, "width"]})
    assert "input `a` has unknown dimensions ['n', 'length', '3']" in caught.value.what
    assert "input `b` has unknown dimensions ['n', '3', 'width']" in caught.value.what
    assert "model.inputs.NAME" in caught.value.fix
    with pytest.raises(ModelError, match="unknown dimensions") as caught:
        _bind({"x": [4, "width"]}, batch=8)
    assert "model.inputs.NAME" in caught.value.fix


def test_a_shape_that_contradicts_the_file_is_refused() -> None:
    with pytest.raises(ModelError, match=r"input `x` is \['n', '3'\] in the file, not \[2, 5\]"):
        _bind({"x": ["n", 3]}, shapes={"x": (2, 5)})


def test_a_shape_for_an_input_that_is_not_there_is_refused() -> None:
    with pytest.raises(ModelError, match="there is no input `y`"):
        _bind({"x": ["n", 3]}, shapes={"y": (2, 5)})


def test_half_precision_inputs_are_fed_in_full_precision() -> None:
    assert _bind({"x": ["n", 3]}, dtype=TensorProto.FLOAT16).dtypes == {"x": "float32"}


def test_text_is_no_input() -> None:
    with pytest.raises(ModelError, match="input `x` holds object, not numbers"):
        _bind({"x": ["n", 3]}, dtype=TensorProto.STRING)


def test_a_model_without_inputs_is_rejected() -> None:
    with pytest.raises(ModelError, match="no inputs"):
        _bind({})
