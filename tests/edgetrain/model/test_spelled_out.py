"""Activations that a file spells out become one op, in any order of factors; what only looks so does not."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from edgetrain.graph.rewrite import calls
from edgetrain.model.importer import import_model
from edgetrain.model.model import Model
from edgetrain.model.onnx_build import GraphWriter
from tests.edgetrain.model.running import expected, run

SHAPE = (4, 5)
Build = Callable[[GraphWriter], str]


def built(build: Build) -> onnx.ModelProto:
    writer = GraphWriter()
    build(writer)
    return writer.finish_with("m", inputs={"x": (TensorProto.FLOAT, SHAPE[1:])}, classes=SHAPE[1])


def imported(build: Build) -> Model:
    return import_model(built(build), name="m", batch=SHAPE[0])


def constant(writer: GraphWriter, value: float) -> str:
    return writer.constant(f"c{value}", np.array(value, np.float32))


def gate(writer: GraphWriter, function: str, inner: str) -> str:
    return writer.node("Add", [writer.node(function, [inner], "bent"), constant(writer, 1.0)], "gate")


def halved_last(writer: GraphWriter) -> str:
    inner = writer.node("Div", ["x", constant(writer, math.sqrt(2))], "inner")
    gated = writer.node("Mul", ["x", gate(writer, "Erf", inner)], "gated")
    return writer.node("Mul", [gated, constant(writer, 0.5)], "logits")


def halved_first(writer: GraphWriter) -> str:
    inner = writer.node("Mul", ["x", constant(writer, math.sqrt(0.5))], "inner")
    halved = writer.node("Mul", [constant(writer, 0.5), "x"], "halved")
    return writer.node("Mul", [gate(writer, "Erf", inner), halved], "logits")


def halved_gate(writer: GraphWriter) -> str:
    inner = writer.node("Mul", ["x", constant(writer, math.sqrt(0.5))], "inner")
    halved = writer.node("Mul", [gate(writer, "Erf", inner), constant(writer, 0.5)], "halved")
    return writer.node("Mul", ["x", halved], "logits")


def by_tanh(writer: GraphWriter) -> str:
    cube = writer.node("Pow", ["x", constant(writer, 3.0)], "cube")
    inner = writer.node("Add", ["x", writer.node("Mul", [cube, constant(writer, 0.044715)], "small")], "sum")
    scaled = writer.node("Mul", [inner, constant(writer, math.sqrt(2 / math.pi))], "scaled")
    gated = writer.node("Mul", ["x", gate(writer, "Tanh", scaled)], "gated")
    return writer.node("Mul", [gated, constant(writer, 0.5)], "logits")


def silu(writer: GraphWriter) -> str:
    return writer.node("Mul", [writer.node("Sigmoid", ["x"], "gate"), "x"], "logits")


FORMS = {
    "halved last": (halved_last, "relax.nn.gelu"),
    "halved first": (halved_first, "relax.nn.gelu"),
    "halved gate": (halved_gate, "relax.nn.gelu"),
    "by tanh": (by_tanh, "relax.nn.gelu_tanh"),
    "silu": (silu, "relax.nn.silu"),
}


@pytest.mark.parametrize("form", FORMS)
def test_it_becomes_one_op(form: str) -> None:
    build, op = FORMS[form]
    assert [str(call.op.name) for _, call in calls(imported(build))] == [op]


@pytest.mark.compile
@pytest.mark.parametrize("form", FORMS)
def test_it_computes_what_the_file_does(form: str) -> None:
    proto = built(FORMS[form][0])
    data = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    (found,) = run(import_model(proto, name="m", batch=SHAPE[0]), {"x": data})
    np.testing.assert_allclose(found, expected(proto, {"x": data})[0], rtol=1e-5, atol=1e-6)


def another_factor(writer: GraphWriter) -> str:
    inner = writer.node("Div", ["x", constant(writer, math.sqrt(2))], "inner")
    gated = writer.node("Mul", ["x", gate(writer, "Erf", inner)], "gated")
    return writer.node("Mul", [gated, constant(writer, 0.4)], "logits")


def another_scale(writer: GraphWriter) -> str:
    inner = writer.node("Div", ["x", constant(writer, 1.5)], "inner")
    gated = writer.node("Mul", ["x", gate(writer, "Erf", inner)], "gated")
    return writer.node("Mul", [gated, constant(writer, 0.5)], "logits")


def another_input(writer: GraphWriter) -> str:
    other = writer.node("Exp", ["x"], "other")
    return writer.node("Mul", [writer.node("Sigmoid", [other], "gate"), "x"], "logits")


@pytest.mark.parametrize("build", [another_factor, another_scale, another_input])
def test_what_only_looks_like_one_stays_as_it_is(build: Build) -> None:
    assert not any("nn." in str(call.op.name) for _, call in calls(imported(build)))
