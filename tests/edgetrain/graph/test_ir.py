"""The training graph as text, and the bounds of what the host writes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from edgetrain.errors import InternalError
from edgetrain.graph.ir import Role, Tensor, TrainGraph, from_json, to_json, validate, without_bounds
from tests.edgetrain.program.tiny_program import tiny_graph


def with_input(bounds: tuple[int, int] | None, *, role: Role = Role.INPUT, dtype: str = "int64") -> TrainGraph:
    """The tiny graph whose first op reads `ids` as well."""
    graph = tiny_graph()
    ids = Tensor(name="ids", shape=(3,), dtype=dtype, role=role, bounds=bounds)
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
