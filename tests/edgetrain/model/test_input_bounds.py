"""Which values a model's inputs of whole numbers may have, by where they are looked up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from edgetrain.model.importer import import_model
from edgetrain.model.model import Model
from edgetrain.value_bounds import InputBounds, PartBounds, Region

ROWS = 6


def node(op: str, inputs: Sequence[str], output: str, **attributes: Any) -> Any:
    return helper.make_node(op, list(inputs), [output], name=output, **attributes)


def bounds_of(nodes: Sequence[Any], *, dtype: int = TensorProto.INT64, rows: int = ROWS) -> InputBounds | None:
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
        "spread": np.array([[0], [100]], np.int64),
        "outer": np.array([0, 2], np.int64),
        "sizes": np.array([1, 2], np.int64),
        "three": np.array(3, np.int64),
        "hundred": np.array(100, np.int64),
        "zero": np.array(0, np.int64),
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


def test_an_input_that_is_not_looked_up_has_no_bounds() -> None:
    assert bounds_of([node("Cast", ["ids"], "out", to=TensorProto.FLOAT)]) is None


def test_a_type_that_holds_nothing_else_needs_no_bounds() -> None:
    nodes = [node("Cast", ["ids"], "places", to=TensorProto.INT64), LOOK_UP]
    assert bounds_of(nodes, dtype=TensorProto.UINT8) == (0, ROWS - 1)
    assert bounds_of(nodes, dtype=TensorProto.UINT8, rows=256) is None


def region(lowest: float, highest: float, *, start: int = 0, length: int = 3, step: int = 3, count: int = 1) -> Region:
    return Region(lowest=lowest, highest=highest, start=start, length=length, step=step, count=count)


COLUMN = (region(-ROWS, ROWS - 1, length=1, step=1),)
BELOW = float(np.nextafter(np.float32(ROWS), np.float32(0)))  # the largest float32 that is cut to the last row
ABOVE = -float(np.nextafter(np.float32(ROWS + 1), np.float32(0)))
CUT: Mapping[str, tuple[list[Any], tuple[Region, ...]]] = {
    "a slice": ([node("Slice", ["ids", "begin", "end", "end"], "places")], COLUMN),
    "a column": ([node("Gather", ["ids", "begin"], "places", axis=1)], COLUMN),
    "two columns": (
        [node("Gather", ["ids", "outer"], "places", axis=1)],
        (region(-ROWS, ROWS - 1, length=1, step=2, count=2),),
    ),
    "the rest": (
        [helper.make_node("Split", ["ids", "sizes"], ["first", "places"], axis=1)],
        (region(-ROWS, ROWS - 1, start=1, length=2, step=2),),
    ),
    "an offset for each column": (
        [node("Add", ["ids", "offsets"], "places")],
        tuple(region(-ROWS - 2 * i, ROWS - 1 - 2 * i, start=i, length=1, step=1) for i in range(3)),
    ),
}


@pytest.mark.parametrize("way", CUT)
def test_elements_that_are_looked_up_have_bounds_and_others_have_none(way: str) -> None:
    nodes, regions = CUT[way]
    model = imported([*nodes, LOOK_UP])
    assert model.inputs[0].bounds == PartBounds(regions=regions)
    assert model.warnings == ()


def test_ids_that_are_multiplied_may_be_as_much_smaller() -> None:
    assert bounds_of([node("Mul", ["ids", "three"], "places"), LOOK_UP]) == (-2, 1)


def test_floats_that_are_cut_to_ids_end_right_before_the_next_one() -> None:
    nodes = [node("Cast", ["ids"], "places", to=TensorProto.INT64), LOOK_UP]
    assert bounds_of(nodes, dtype=TensorProto.FLOAT) == PartBounds(regions=(region(ABOVE, BELOW),))


def test_what_is_clipped_is_asked_for_on_the_side_that_is_left() -> None:
    assert bounds_of([node("Clip", ["ids", "zero"], "places"), LOOK_UP]) == (-(2**63), ROWS - 1)
    model = imported([node("Clip", ["ids", "zero", "one"], "places"), LOOK_UP])
    assert (model.inputs[0].bounds, model.warnings) == (None, ())


def test_a_number_that_a_smaller_type_would_wrap_round_is_out_of_bounds() -> None:
    narrow = node("Cast", ["ids"], "narrow", to=TensorProto.INT8)
    nodes = [narrow, node("Cast", ["narrow"], "places", to=TensorProto.INT64), LOOK_UP]
    assert bounds_of(nodes, rows=1000) == (-128, 127)


CLIPPED: Mapping[str, list[Any]] = {
    "multiplied with itself": [node("Mul", ["ids", "ids"], "places")],
    "chosen by data": [
        node("Less", ["ids", "one"], "is_low"),
        node("Where", ["is_low", "one", "ids"], "places"),
    ],
    "from one sample alone": [node("Slice", ["ids", "begin", "end", "begin"], "places")],
    "in another way in each sample": [node("Add", ["ids", "spread"], "places")],
    "never in the table": [node("Clip", ["ids", "hundred"], "places")],
}


@pytest.mark.parametrize("way", CLIPPED)
def test_ids_without_bounds_that_are_looked_up_are_told_to_be_clipped(way: str) -> None:
    model = imported([*CLIPPED[way], LOOK_UP])
    assert model.inputs[0].bounds is None
    assert [line for line in model.warnings if "`ids`" in line and "clipped, not refused" in line]


def test_ids_that_were_floats_of_64_bits_are_told_to_be_clipped() -> None:
    nodes = [node("Cast", ["ids"], "places", to=TensorProto.INT64), LOOK_UP]
    assert imported(nodes, dtype=TensorProto.DOUBLE).warnings


def test_more_regions_than_a_driver_should_look_at_are_told_to_be_clipped() -> None:
    columns = np.arange(300)
    nodes = [helper.make_node("Add", ["ids", "each"], ["places"]), LOOK_UP]
    graph = helper.make_graph(
        nodes,
        "wide",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [2, 300])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
        [_tensor("table", np.ones((900, 4), np.float32)), _tensor("each", columns)],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = import_model(proto, name="wide", batch=2)
    assert model.inputs[0].bounds is None
    assert model.warnings


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_told_of_ids_that_are_checked(way: str) -> None:
    assert imported([*WAYS[way], LOOK_UP]).warnings == ()


def test_nothing_is_told_of_places_that_the_model_finds_itself() -> None:
    nodes = [node("ArgMax", ["ids"], "places", axis=1, keepdims=0), LOOK_UP]
    assert imported(nodes).warnings == ()
