"""Whole patterns as exporters write them: rules that are right alone must also be right together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgetrain._tvm import relax
from tests.edgetrain.graph.gradients.finite_difference import (
    Case,
    CompiledCases,
    assert_gradient,
    case_name,
    compile_cases,
    normal,
    positive,
)

o = relax.op
BATCH, TOKENS, WIDTH, HEADS = 2, 3, 4, 2


def _number(value: float) -> Any:
    return relax.const(value, "float64")


def _heads(x: Any, order: list[int]) -> Any:
    return o.permute_dims(o.reshape(x, (BATCH, TOKENS, HEADS, WIDTH // HEADS)), order)


def _attention(x: Any, query: Any, key: Any, value: Any, mask: Any) -> Any:
    q = _heads(o.matmul(x, query), [0, 2, 1, 3])
    k = _heads(o.matmul(x, key), [0, 2, 3, 1])
    v = _heads(o.matmul(x, value), [0, 2, 1, 3])
    scores = o.where(mask, o.multiply(o.matmul(q, k), _number(0.7)), _number(-1e9))
    mixed = o.matmul(o.nn.softmax(scores, -1), v)
    return o.add(o.reshape(o.permute_dims(mixed, [0, 2, 1, 3]), (BATCH, TOKENS, WIDTH)), x)


def _gelu_by_hand(x: Any) -> Any:
    return o.multiply(o.multiply(x, o.add(o.erf(o.divide(x, _number(2**0.5))), _number(1.0))), _number(0.5))


def _layer_norm_by_hand(x: Any, gamma: Any) -> Any:
    """As opsets before 17 write it: no op of its own."""
    centred = o.subtract(x, o.mean(x, -1, keepdims=True))
    variance = o.mean(o.square(centred), -1, keepdims=True)
    return o.multiply(o.divide(centred, o.sqrt(o.add(variance, _number(1e-5)))), gamma)


def _squeeze_and_excite(x: Any, down: Any, up: Any) -> Any:
    pooled = o.mean(x, [2, 3], keepdims=True)
    gate = o.sigmoid(o.nn.conv2d(o.nn.silu(o.nn.conv2d(pooled, down)), up))
    return o.multiply(x, gate)


CASES = (
    Case(
        name="causal_attention",
        op=_attention,
        inputs={
            "x": normal(BATCH, TOKENS, WIDTH),
            **{n: normal(WIDTH, WIDTH, seed=i) for i, n in enumerate(("query", "key", "value"))},
            "mask": np.tril(np.ones((TOKENS, TOKENS), bool)),
        },
    ),
    Case(name="gelu_by_hand", op=_gelu_by_hand, inputs={"x": normal(3, 4)}),
    Case(name="layer_norm_by_hand", op=_layer_norm_by_hand, inputs={"x": normal(2, 5), "gamma": positive(5)}),
    Case(
        name="squeeze_and_excite",
        op=_squeeze_and_excite,
        inputs={"x": normal(2, 4, 3, 3), "down": normal(2, 4, 1, 1), "up": normal(4, 2, 1, 1)},
    ),
    Case(
        name="embedding_then_norm",
        op=lambda table, ids, gamma, beta: o.nn.layer_norm(o.take(table, ids, 0), gamma, beta, axes=[-1]),
        inputs={
            "table": normal(5, 4),
            "ids": np.array([[0, 2], [2, 4]]),
            "gamma": normal(4),
            "beta": normal(4, seed=1),
        },
    ),
    Case(
        name="residual_block",
        op=lambda x, w: o.nn.relu(o.add(o.nn.conv2d(o.nn.relu(o.nn.conv2d(x, w, padding=1)), w, padding=1), x)),
        inputs={"x": normal(1, 2, 4, 4), "w": normal(2, 2, 3, 3)},
    ),
)


@pytest.fixture(scope="module")
def compiled() -> CompiledCases:
    return compile_cases(CASES)


@pytest.mark.compile
@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_gradient_is_the_finite_difference(case: Case, compiled: CompiledCases) -> None:
    assert_gradient(compiled, case)
