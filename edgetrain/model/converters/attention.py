"""Attention and rotary positions as opset 23 has them, built from products, selections and a softmax.

What a mask forbids is replaced, not lowered by infinity: no infinity meets another on the way back, and a query that
may attend to nothing gives zeros, as the ONNX standard asks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgetrain._tvm import dtype_of, relax, runtime, shape_of
from edgetrain.model.converters.context import CannotConvert, Converter, NodeContext
from edgetrain.model.converters.layout import slice_axis

_Q, _K, _V, _MASK, _PAST_KEY, _PAST_VALUE, _LENGTHS = range(7)
_FORBIDDEN = -1e30  # exp() of it is 0 beside any score, and it is far from where float32 ends
_SCORES, _CAPPED, _MASKED, _WEIGHTS = range(4)  # what the fourth output shows, by `qk_matmul_output_mode`


@dataclass(frozen=True, kw_only=True)
class _Scores:
    """Scores of every query (`queries`) against every key (`keys`); `past` keys came before the first query."""

    queries: int
    keys: int
    past: int


def _attention(context: NodeContext) -> list[Any]:
    query = _by_heads(context, context.required(_Q), "q_num_heads")
    key = _with_past(context, _by_heads(context, context.required(_K), "kv_num_heads"), _PAST_KEY)
    value = _with_past(context, _by_heads(context, context.required(_V), "kv_num_heads"), _PAST_VALUE)
    past = shape_of(context.input(_PAST_KEY))[2] if context.has(_PAST_KEY) else 0
    sizes = _Scores(queries=shape_of(query)[2], keys=shape_of(key)[2], past=past)
    groups = shape_of(query)[1] // shape_of(key)[1]  # queries' heads that share one head of keys
    wide_key, wide_value = (_repeated(context, part, groups) for part in (key, value))
    scores = _products(context, query, wide_key)
    capped = _capped(context, scores)
    allowed, bias = _masks(context, sizes, dtype_of(capped))
    masked = capped if bias is None else context.emit(relax.op.add(capped, bias))
    weights = _weights(context, masked, allowed)
    result = context.emit(relax.op.matmul(weights, wide_value))
    if len(shape_of(context.input(_Q))) == 3:
        batch, heads, queries, features = shape_of(result)
        rows = context.emit(relax.op.permute_dims(result, [0, 2, 1, 3]))
        result = context.emit(relax.op.reshape(rows, (batch, queries, heads * features)))
    shown = {_SCORES: scores, _CAPPED: capped, _WEIGHTS: weights}
    return [result, key, value, shown.get(_shown_mode(context))][: len(context.node.output)]


def _shown_mode(context: NodeContext) -> int:
    mode = int(context.attribute("qk_matmul_output_mode", _SCORES))
    if mode == _MASKED and any(context.node.output[3:]):
        raise CannotConvert("its output of masked scores holds infinities; ask for another `qk_matmul_output_mode`")
    return mode


def _by_heads(context: NodeContext, tensor: Any, heads_attribute: str) -> Any:
    """(batch, heads, sequence, features), from (batch, sequence, heads · features) where it has three axes."""
    if len(shape_of(tensor)) == 4:
        return tensor
    batch, sequence, hidden = shape_of(tensor)
    heads = int(context.attribute(heads_attribute, 0))
    if heads <= 0 or hidden % heads:
        raise CannotConvert(f"{hidden} features do not make up `{heads_attribute}` = {heads} heads")
    view = context.emit(relax.op.reshape(tensor, (batch, sequence, heads, hidden // heads)))
    return context.emit(relax.op.permute_dims(view, [0, 2, 1, 3]))


def _with_past(context: NodeContext, tensor: Any, index: int) -> Any:
    return context.emit(relax.op.concat([context.input(index), tensor], 2)) if context.has(index) else tensor


def _repeated(context: NodeContext, tensor: Any, groups: int) -> Any:
    return tensor if groups == 1 else context.emit(relax.op.repeat(tensor, groups, 1))


def _products(context: NodeContext, query: Any, key: Any) -> Any:
    scale = float(context.attribute("scale", 1.0 / math.sqrt(shape_of(query)[3])))
    scaled = context.emit(relax.op.multiply(query, context.number(scale, query)))
    return context.emit(relax.op.matmul(scaled, context.emit(relax.op.permute_dims(key, [0, 1, 3, 2]))))


def _capped(context: NodeContext, scores: Any) -> Any:
    """cap · tanh(scores / cap)"""
    cap = float(context.attribute("softcap", 0.0))
    if cap == 0.0:
        return scores
    shrunk = context.emit(relax.op.multiply(scores, context.number(1.0 / cap, scores)))
    return context.emit(relax.op.multiply(context.emit(relax.op.tanh(shrunk)), context.number(cap, scores)))


def _weights(context: NodeContext, scores: Any, allowed: Any) -> Any:
    if allowed is None:
        return context.emit(relax.op.nn.softmax(scores, -1))
    kept = context.emit(relax.op.where(allowed, scores, context.number(_FORBIDDEN, scores)))
    weights = context.emit(relax.op.nn.softmax(kept, -1))
    return context.emit(relax.op.where(allowed, weights, context.number(0.0, weights)))


def _masks(context: NodeContext, sizes: _Scores, dtype: str) -> tuple[Any, Any]:
    """What may be attended to, and what is added to the scores; None where that is everything, or nothing."""
    allowed = [m for m in (_position_mask(context, sizes), _length_mask(context, sizes)) if m is not None]
    bias = None
    if context.has(_MASK):
        mask = _padded_mask(context, sizes)
        if dtype_of(mask) == "bool":
            allowed.append(mask)
        else:
            lowest = relax.const(_FORBIDDEN, dtype)
            allowed.append(context.emit(relax.op.greater(mask, lowest)))
            bias = context.emit(relax.op.maximum(mask, lowest))
    together = allowed[0] if allowed else None
    for other in allowed[1:]:
        together = context.emit(relax.op.logical_and(together, other))
    return together, bias


def _position_mask(context: NodeContext, sizes: _Scores) -> Any:
    """Keys that a query's place in the sequence lets it see: none that come later, none outside of its window."""
    is_causal = bool(context.attribute("is_causal", 0))
    left, right = (int(context.attribute(f"{side}_window_size", -1)) for side in ("left", "right"))
    if not is_causal and left < 0 and right < 0:
        return None
    if context.has(_LENGTHS):
        raise CannotConvert("which keys come before a query depends on data (`nonpad_kv_seqlen`)")
    ahead = np.arange(sizes.keys)[None, :] - (np.arange(sizes.queries)[:, None] + sizes.past)
    seen = np.ones(ahead.shape, bool)
    seen &= ahead <= 0 if is_causal else True
    seen &= ahead >= -left if left >= 0 else True
    seen &= ahead <= right if right >= 0 else True
    return relax.const(runtime.tensor(seen))


def _length_mask(context: NodeContext, sizes: _Scores) -> Any:
    """Each row's keys before its own end."""
    if not context.has(_LENGTHS):
        return None
    lengths = context.emit(relax.op.reshape(context.input(_LENGTHS), (-1, 1, 1, 1)))
    places = relax.const(runtime.tensor(np.arange(sizes.keys, dtype=dtype_of(lengths)).reshape(1, 1, 1, -1)))
    return context.emit(relax.op.less(places, lengths))


def _padded_mask(context: NodeContext, sizes: _Scores) -> Any:
    """The mask with every key: those it leaves out are forbidden."""
    mask = _settled(context, _MASK)
    missing = sizes.keys - shape_of(mask)[-1]
    if missing <= 0:
        return mask
    forbidden = False if dtype_of(mask) == "bool" else 2 * _FORBIDDEN
    rest = relax.const(runtime.tensor(np.full((*shape_of(mask)[:-1], missing), forbidden, dtype_of(mask))))
    return context.emit(relax.op.concat([mask, rest], len(shape_of(mask)) - 1))


def _settled(context: NodeContext, index: int) -> Any:
    """A stored mask or table of angles as a constant: it says where things are, and is nothing to learn."""
    array = context.known_input(index)
    return context.required(index) if array is None else relax.const(runtime.tensor(np.array(array, order="C")))


def _rotary_embedding(context: NodeContext) -> Any:
    """Turns pairs of features by angles that grow with the place in the sequence."""
    data = context.required(0)
    by_heads = _by_heads(context, data, "num_heads")
    features = shape_of(by_heads)[3]
    turned = int(context.attribute("rotary_embedding_dim", 0)) or features
    cosine, sine = (_angles(context, index, turned // 2) for index in (1, 2))
    is_interleaved = bool(context.attribute("interleaved", 0))
    if is_interleaved:
        one, two = (slice_axis(context, by_heads, 3, start, turned // 2, 2) for start in (0, 1))
    else:
        one, two = (slice_axis(context, by_heads, 3, start, turned // 2) for start in (0, turned // 2))
    real = _combined(context, relax.op.subtract, (cosine, one), (sine, two))
    imaginary = _combined(context, relax.op.add, (sine, one), (cosine, two))
    result = _joined(context, real, imaginary, is_interleaved=is_interleaved)
    if turned < features:
        rest = slice_axis(context, by_heads, 3, turned, features - turned)
        result = context.emit(relax.op.concat([result, rest], 3))
    if len(shape_of(data)) == 4:
        return result
    return context.emit(relax.op.reshape(context.emit(relax.op.permute_dims(result, [0, 2, 1, 3])), shape_of(data)))


def _angles(context: NodeContext, index: int, pairs: int) -> Any:
    """(batch, 1, sequence, pairs), looked up where the node has positions."""
    table = _settled(context, index)
    if context.has(3):
        context.require_index(3, shape_of(table)[0], from_end=False)
        table = context.emit(relax.op.take(table, context.input(3), 0, mode="clip"))
    if shape_of(table)[-1] != pairs:
        raise CannotConvert(f"its table has {shape_of(table)[-1]} angles for {pairs} pairs of features")
    return context.emit(relax.op.expand_dims(table, [1]))


def _combined(context: NodeContext, combine: Any, *pairs: Sequence[Any]) -> Any:
    return context.emit(combine(*(context.emit(relax.op.multiply(*pair)) for pair in pairs)))


def _joined(context: NodeContext, real: Any, imaginary: Any, *, is_interleaved: bool) -> Any:
    if not is_interleaved:
        return context.emit(relax.op.concat([real, imaginary], 3))
    parts = [context.emit(relax.op.expand_dims(part, [4])) for part in (real, imaginary)]
    *lead, pairs = shape_of(real)
    return context.emit(relax.op.reshape(context.emit(relax.op.concat(parts, 4)), (*lead, 2 * pairs)))


ATTENTION_CONVERTERS: Mapping[str, Converter] = {"Attention": _attention, "RotaryEmbedding": _rotary_embedding}
