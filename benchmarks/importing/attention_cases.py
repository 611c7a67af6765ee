"""One-node models of ops that are new in opset 23 and later: attention, rotary positions, gated activations."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.importing.converter_cases import Array, NodeCase, case, normal

_BATCH, _HEADS, _QUERIES, _KEYS, _MACHINE = 2, 4, 3, 5, 6
_NAMES = ("q", "k", "v", "mask", "past_k", "past_v", "lengths")


def _attention(
    name: str,
    *,
    key_heads: int = _HEADS,
    keys: int = _KEYS,
    flat: bool = False,
    mask: Array | None = None,
    past: int = 0,
    lengths: Array | None = None,
    stored_mask: bool = False,
    outputs: int = 1,
    opset: int = 23,
    **attributes: Any,
) -> NodeCase:
    def tokens(heads: int, length: int, features: int, seed: int) -> Array:
        shape = (_BATCH, length, heads * features) if flat else (_BATCH, heads, length, features)
        return normal(*shape, seed=seed)

    inputs = {
        "q": tokens(_HEADS, _QUERIES, _MACHINE, 0),
        "k": tokens(key_heads, keys, _MACHINE, 1),
        "v": tokens(key_heads, keys, 2, 2),  # values may have other features than keys
    }
    stored: dict[str, Array] = {}
    if mask is not None:
        (stored if stored_mask else inputs)["mask"] = mask
    if past:
        inputs["past_k"] = normal(_BATCH, key_heads, past, _MACHINE, seed=3)
        inputs["past_v"] = normal(_BATCH, key_heads, past, 2, seed=4)
    if lengths is not None:
        inputs["lengths"] = lengths
    order = [n if n in inputs or n in stored else "" for n in _NAMES]
    while not order[-1]:
        order.pop()
    heads = {"q_num_heads": _HEADS, "kv_num_heads": key_heads} if flat else {}
    return NodeCase(
        name=f"Attention_{name}",
        op="Attention",
        inputs=inputs,
        stored=stored,
        order=tuple(order),
        attributes={**heads, **attributes},
        outputs=outputs,
        opset=opset,
    )


_SEEN = np.random.default_rng(0).random((_BATCH, 1, _QUERIES, _KEYS)) < 0.6
_SEEN[..., 0] = True
_BLIND = _SEEN.copy()
_BLIND[0, 0, 1] = False  # a query that may attend to nothing
_BIAS = normal(_QUERIES, _KEYS, seed=5)

ATTENTIONS = (
    _attention("plain"),
    _attention("flat", flat=True),
    _attention("scaled", scale=0.25),
    _attention("capped", softcap=0.5),
    _attention("causal", keys=_QUERIES, is_causal=1),
    _attention("grouped", key_heads=2),
    _attention("grouped_flat", key_heads=1, flat=True),
    _attention("mask", mask=_SEEN),
    _attention("stored_mask", mask=_SEEN, stored_mask=True),
    _attention("blind_query", mask=_BLIND),
    _attention("bias", mask=_BIAS),
    _attention("stored_bias", mask=_BIAS, stored_mask=True),
    _attention("past", past=2, outputs=3),
    _attention("past_causal", past=2, keys=_QUERIES, is_causal=1, outputs=3),
    _attention("scores", outputs=4, past=1, qk_matmul_output_mode=0),
    _attention("weights", outputs=4, past=1, qk_matmul_output_mode=3),
    _attention("lengths", lengths=np.array([3, 5]), opset=24),
)


def _rotary(name: str, x: Array, table_shape: tuple[int, ...], *positions: Array, **attributes: Any) -> NodeCase:
    angles = normal(*table_shape, seed=1)
    return NodeCase(
        name=f"RotaryEmbedding_{name}",
        op="RotaryEmbedding",
        inputs={"x": x, **dict(zip(("positions",), positions, strict=False))},
        stored={"cosine": np.cos(angles), "sine": np.sin(angles)},
        order=("x", "cosine", "sine", "positions")[: 3 + len(positions)],
        attributes=attributes,
        opset=23,
    )


_POSITIONS = np.array([[0, 1, 2], [4, 3, 7]], np.int64)
ROTARIES = (
    _rotary("halves", normal(2, 4, 3, 8), (10, 4), _POSITIONS),
    _rotary("interleaved", normal(2, 4, 3, 8), (10, 4), _POSITIONS, interleaved=1),
    _rotary("part", normal(2, 4, 3, 8), (10, 2), _POSITIONS, rotary_embedding_dim=4, num_heads=4),
    _rotary("flat", normal(2, 3, 32), (10, 4), _POSITIONS, num_heads=4),
    _rotary("no_positions", normal(2, 4, 3, 8), (2, 3, 4)),
)

OTHERS = (
    case("RMSNormalization_last", "RMSNormalization", normal(2, 3, 4), normal(4, seed=1), opset=23),
    case("RMSNormalization_two", "RMSNormalization", normal(2, 3, 4), normal(3, 4, seed=1), opset=23, axis=1),
    case("RMSNormalization_broadcast", "RMSNormalization", normal(2, 3, 4), normal(4, seed=1), opset=23, axis=-2),
    case("Swish_plain", "Swish", normal(2, 3), opset=24),
    case("Swish_steep", "Swish", normal(2, 3), opset=24, alpha=1.7),
    case("Relu_newest", "Relu", normal(2, 3), opset=24),
)

ATTENTION_CASES: tuple[NodeCase, ...] = (*ATTENTIONS, *ROTARIES, *OTHERS)
