"""The training graph as text, and the bounds of what the host writes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgetrain.errors import InternalError
from edgetrain.graph.ir import Role, Tensor, TrainGraph, from_json, to_json, validate, without_bounds
from edgetrain.value_bounds import InputBounds, PartBounds, Region
from tests.edgetrain.program.tiny_program import tiny_graph


def with_input(bounds: InputBounds | None, *, role: Role = Role.INPUT, dtype: str = "int64") -> TrainGraph:
    """The tiny graph whose first op reads `ids` as well."""
    graph = tiny_graph()
    ids = Tensor(name="ids", shape=(2, 3), dtype=dtype, role=role, bounds=bounds)
    step = graph.functions["step"]
    functions = {**graph.functions, "step": (replace(step[0], reads=("ids", *step[0].reads)), *step[1:])}
    return TrainGraph(name=graph.name, tensors={**graph.tensors, "ids": ids}, functions=functions)


def test_bounds_survive_the_text_and_are_asked_for_by_function() -> None:
    graph = from_json(to_json(with_input((-6, 5))))
    assert graph == with_input((-6, 5))
    assert graph.input_bounds == {"ids": (-6, 5)}
    assert [tensor.name for tensor in graph.bounded_inputs("step")] == ["ids"]
    assert graph.bounded_inputs("evaluate") == ()


def test_a_graph_without_bounds_has_the_text_it_had_before_there_were_any() -> None:
    """Runs are resumed by it."""
    assert "bounds" not in to_json(tiny_graph())
    assert to_json(without_bounds(with_input((-6, 5)))) == to_json(with_input(None))


@pytest.mark.parametrize("graph", [with_input((0, 1), role=Role.CONSTANT), with_input((0, 1), dtype="float32")])
def test_only_whole_numbers_that_the_host_writes_have_bounds(graph: TrainGraph) -> None:
    with pytest.raises(InternalError, match=r"`ids`.* cannot have bounds"):
        validate(graph)


@pytest.mark.parametrize("pair", [[1], [0, 1.5], [0, True], "01", 5])
def test_bounds_that_are_not_two_whole_numbers_are_refused(pair: Any) -> None:
    data = json.loads(to_json(with_input((0, 1))))
    next(tensor for tensor in data["tensors"] if tensor["name"] == "ids")["bounds"] = pair
    with pytest.raises(InternalError, match="two whole numbers"):
        from_json(json.dumps(data))


def region(lowest: float = 0, highest: float = 1, *, start: int = 1, step: int = 1) -> Region:
    return Region(lowest=lowest, highest=highest, start=start, length=1, step=step, count=2)


def test_regions_survive_the_text() -> None:
    bounds = PartBounds(regions=(region(-6.5, float(np.float32(0.1))), region(start=0, step=2)))
    graph = from_json(to_json(with_input(bounds, dtype="float32")))
    assert graph == with_input(bounds, dtype="float32")
    assert graph.input_bounds == {"ids": bounds}


WRONG_REGIONS = {
    "beyond the sample": with_input(PartBounds(regions=(region(start=2),))),
    "of a constant": with_input(PartBounds(regions=(region(),)), role=Role.CONSTANT),
    "of a type without bounds": with_input(PartBounds(regions=(region(),)), dtype="float64"),
    "of fractions in whole numbers": with_input(PartBounds(regions=(region(0, 1.5),))),
}


@pytest.mark.parametrize("graph", WRONG_REGIONS.values(), ids=list(WRONG_REGIONS))
def test_regions_that_an_input_cannot_have_are_refused(graph: TrainGraph) -> None:
    with pytest.raises(InternalError, match=r"`ids`.* cannot have bounds"):
        validate(graph)


@pytest.mark.parametrize(
    "change",
    [
        {"lowest": float("nan")},
        {"highest": float("inf")},
        {"lowest": "0"},
        {"lowest": True},
        {"start": -1},
        {"start": 0.5},
        {"length": 0},
        {"length": 2},
        {"count": 0},
        {"other": 1},
    ],
)
def test_a_region_that_is_broken_is_refused(change: Any) -> None:
    data = json.loads(to_json(with_input(PartBounds(regions=(region(),)))))
    next(tensor for tensor in data["tensors"] if tensor["name"] == "ids")["bounds"][0] |= change
    with pytest.raises(InternalError, match="is no region"):
        from_json(json.dumps(data))


def test_the_alignment_survives_the_text_and_the_usual_one_is_not_written() -> None:
    """The text of a graph for a processor is what it was before there were any others: runs are resumed by it."""
    aligned = replace(with_input((0, 1)), alignment_bytes=512)
    assert from_json(to_json(aligned)) == aligned
    assert without_bounds(aligned).alignment_bytes == 512
    assert "alignment" not in to_json(tiny_graph())


@pytest.mark.parametrize("alignment", [0, -64, 96, 64.0, "64", None])
def test_an_alignment_that_no_tensor_can_have_is_refused(alignment: Any) -> None:
    data = {**json.loads(to_json(tiny_graph())), "alignment_bytes": alignment}
    with pytest.raises(InternalError, match="the graph is broken"):
        from_json(json.dumps(data))
