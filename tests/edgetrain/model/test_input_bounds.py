"""Which values a model's inputs of whole numbers may have, by where they are looked up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from edgetrain.model.importer import import_model
from edgetrain.model.model import Model

ROWS = 6


def node(op: str, inputs: Sequence[str], output: str, **attributes: Any) -> Any:
    return helper.make_node(op, list(inputs), [output], name=output, **attributes)


def bounds_of(nodes: Sequence[Any], *, dtype: int = TensorProto.INT64, rows: int = ROWS) -> tuple[int, int] | None:
    """Those of `ids` (2, 3), in a model of these nodes that ends in `out`."""
    (spec,) = imported(nodes, dtype=dtype, rows=rows).inputs
    return spec.bounds


def imported(nodes: Sequence[Any], *, dtype: int = TensorProto.INT64, rows: int = ROWS) -> Model:
    initializers = {
        "table": np.ones((rows, 4), np.float32),
        "smaller": np.ones((4, 4), np.float32),
        "one": np.array(1, np.int64),
        "flat": np.array([-1], np.int64),
        "first_axis": np.array([0], np.int64),
        "prefix": np.zeros((2, 1), np.int64),
        "two": np.array([2], np.int64),
        "square": np.ones((2, ROWS), np.float32),
        "begin": np.array([0], np.int64),
        "end": np.array([1], np.int64),
        "offsets": np.array([0, 2, 4], np.int64),
    }
    graph = helper.make_graph(
        list(nodes),
        "ids",
        [helper.make_tensor_value_info("ids", dtype, [2, 3])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
        [_tensor(name, values) for name, values in initializers.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return import_model(proto, name="ids", batch=2)


def _tensor(name: str, values: Any) -> Any:
    kind = helper.np_dtype_to_tensor_dtype(values.dtype)
    return helper.make_tensor(name, kind, values.shape, values.reshape(-1).tolist())


LOOK_UP = node("Gather", ["table", "places"], "out")
WAYS: Mapping[str, list[Any]] = {
    "at once": [node("Identity", ["ids"], "places")],
    "cast": [node("Cast", ["ids"], "places", to=TensorProto.INT32)],
    "reshaped": [node("Reshape", ["ids", "flat"], "places")],
    "turned": [node("Transpose", ["ids"], "places", perm=[1, 0])],
    "unsqueezed, squeezed": [
        node("Unsqueeze", ["ids", "first_axis"], "wide"),
        node("Squeeze", ["wide", "first_axis"], "places"),
    ],
    "flattened": [node("Flatten", ["ids"], "places")],
    "behind a constant": [node("Concat", ["prefix", "ids"], "places", axis=1)],
}


@pytest.mark.parametrize("way", WAYS)
def test_ids_that_are_looked_up_are_rows_of_the_table_or_count_from_its_end(way: str) -> None:
    assert bounds_of([*WAYS[way], LOOK_UP]) == (-ROWS, ROWS - 1)


def test_ids_that_are_shifted_before_the_look_up_may_be_as_much_larger() -> None:
    assert bounds_of([node("Sub", ["ids", "one"], "places"), LOOK_UP]) == (1 - ROWS, ROWS)
    assert bounds_of([node("Add", ["ids", "one"], "places"), LOOK_UP]) == (-1 - ROWS, ROWS - 2)


def test_ids_of_two_tables_suit_the_smaller_one() -> None:
    nodes = [
        node("Gather", ["table", "ids"], "of_table"),
        node("Gather", ["smaller", "ids"], "of_smaller"),
        node("Add", ["of_table", "of_smaller"], "out"),
    ]
    assert bounds_of(nodes) == (-4, 3)


def test_indices_of_single_elements_have_bounds_too() -> None:
    assert bounds_of([node("GatherElements", ["square", "ids"], "out", axis=1)]) == (-ROWS, ROWS - 1)


def test_tuples_of_indices_are_within_the_largest_of_their_axes() -> None:
    nodes = [node("Unsqueeze", ["ids", "two"], "tuples"), node("GatherND", ["table", "tuples"], "out")]
    assert bounds_of(nodes) == (-ROWS, ROWS - 1)


def test_what_the_model_computes_from_its_input_gives_that_no_bounds() -> None:
    assert bounds_of([node("Mul", ["ids", "one"], "places"), LOOK_UP]) is None
    assert bounds_of([node("Cast", ["ids"], "out", to=TensorProto.FLOAT)]) is None


def test_a_type_that_holds_nothing_else_needs_no_bounds() -> None:
    nodes = [node("Cast", ["ids"], "places", to=TensorProto.INT64), LOOK_UP]
    assert bounds_of(nodes, dtype=TensorProto.UINT8) == (0, ROWS - 1)
    assert bounds_of(nodes, dtype=TensorProto.UINT8, rows=256) is None


def test_an_input_of_floats_has_no_bounds() -> None:
    assert bounds_of([node("Cast", ["ids"], "places", to=TensorProto.INT64), LOOK_UP], dtype=TensorProto.FLOAT) is None


CLIPPED: Mapping[str, list[Any]] = {
    "a slice": [node("Slice", ["ids", "begin", "end", "end"], "places")],
    "a column": [node("Gather", ["ids", "one"], "places", axis=1)],
    "with an offset for each column": [node("Add", ["ids", "offsets"], "places")],
    "multiplied": [node("Mul", ["ids", "one"], "places")],
}


@pytest.mark.parametrize("way", CLIPPED)
def test_ids_without_bounds_that_are_looked_up_are_told_to_be_clipped(way: str) -> None:
    model = imported([*CLIPPED[way], LOOK_UP])
    assert model.inputs[0].bounds is None
    assert [line for line in model.warnings if "`ids`" in line and "clipped, not refused" in line]


def test_a_part_of_the_ids_is_told_to_be_clipped() -> None:
    split = helper.make_node("Split", ["ids"], ["places", "second", "third"], axis=1, name="split")
    assert imported([split, LOOK_UP]).warnings


def test_ids_that_were_floats_are_told_to_be_clipped() -> None:
    nodes = [node("Cast", ["ids"], "places", to=TensorProto.INT64), LOOK_UP]
    assert imported(nodes, dtype=TensorProto.FLOAT).warnings


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_told_of_ids_that_are_checked(way: str) -> None:
    assert imported([*WAYS[way], LOOK_UP]).warnings == ()


def test_nothing_is_told_of_places_that_the_model_finds_itself() -> None:
    nodes = [node("ArgMax", ["ids"], "places", axis=1, keepdims=0), LOOK_UP]
    assert imported(nodes).warnings == ()
