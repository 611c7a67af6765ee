"""MiniLM-L6 with its sentence-embedding weights and a classifier on top, rebuilt as ONNX from a pip package's tensors.

A BERT encoder (Wang et al. 2020; layers normalise after the residual), the mean over the tokens that are no padding,
and one dense layer. Token types are always 0 here, so their embedding is one vector that is added to every token.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from edgetrain.errors import ModelError
from edgetrain.files.safetensors_file import read_safetensors
from edgetrain.model.onnx_build import FloatArray, GraphWriter
from edgetrain.model.zoo_weights import MINILM

_WEIGHTS = "model/model.safetensors"
HEADS = 12
_CLASSES = 2
_EPSILON = 1e-12
_MASKED = -1e9  # added to a score: nothing is left of it after the softmax
_SEED = 0

State = Mapping[str, np.ndarray[Any, Any]]


def minilm_l6() -> onnx.ModelProto:
    """The model with a new head of two classes. Raises `ModelError` where the package of its weights is missing."""
    return build_minilm(read_safetensors(find_weights()), heads=HEADS)


def find_weights() -> Path:
    """The weights' file inside the installed package, found without importing it."""
    spec = importlib.util.find_spec(MINILM.module)
    path = Path(spec.origin).parent / _WEIGHTS if spec is not None and spec.origin else None
    if path is None or not path.is_file():
        raise ModelError(
            "`zoo:minilm-l6` needs weights that are not installed",
            why=f"the Python package `{MINILM.name}` (84 MB) holds them; what it depends on is not needed",
            fix=MINILM.install,
        )
    return path


def build_minilm(state: State, *, heads: int) -> onnx.ModelProto:
    """The model from tensors under the names of Hugging Face's BertModel; sizes come with the tensors.

    Inputs `input_ids` and `attention_mask`, int64 (batch, sequence), the sequence at most as long as the position
    table. The head's weights are drawn from a fixed seed with the variance 1 / inputs.
    """
    writer = GraphWriter()
    x = _embeddings(writer, state)
    scores_mask = _scores_mask(writer)
    layers = 1 + max(int(name.split(".")[2]) for name in state if name.startswith("encoder.layer."))
    for layer in range(layers):
        x = _layer(writer, state, x, scores_mask, f"encoder.layer.{layer}", heads=heads)
    x = _mean_of_tokens(writer, x)
    width = state["embeddings.word_embeddings.weight"].shape[1]
    rng = np.random.Generator(np.random.PCG64(_SEED))
    weight: FloatArray = (rng.standard_normal((_CLASSES, width)) / math.sqrt(width)).astype(np.float32)
    writer.dense(x, weight, np.zeros(_CLASSES, np.float32), "logits", layer="head")
    sequence = (TensorProto.INT64, ["sequence"])
    return writer.finish_with("minilm-l6", inputs={"input_ids": sequence, "attention_mask": sequence}, classes=_CLASSES)


def _embeddings(writer: GraphWriter, state: State) -> str:
    words = writer.weight("embeddings.words", state["embeddings.word_embeddings.weight"])
    positions = writer.weight("embeddings.positions", state["embeddings.position_embeddings.weight"])
    kind = writer.weight("embeddings.type", state["embeddings.token_type_embeddings.weight"][0])
    shape = writer.node("Shape", ["input_ids"], "ids.shape")
    length = writer.node("Slice", [shape, *_numbers(writer, 1, 2)], "ids.length")
    x = writer.node("Gather", [words, "input_ids"], "embeddings.gathered", axis=0)
    y = writer.node("Slice", [positions, *_numbers(writer, 0), length], "embeddings.position")
    x = writer.node("Add", [x, y], "embeddings.placed")
    x = writer.node("Add", [x, kind], "embeddings.typed")
    return _layer_norm(writer, state, x, "embeddings.LayerNorm")


def _numbers(writer: GraphWriter, *values: int) -> list[str]:
    return [writer.constant(f"number.{value}", np.array([value], np.int64)) for value in values]


def _scores_mask(writer: GraphWriter) -> str:
    """0 where a token counts and a large negative number where it is padding, (batch, 1, 1, sequence)."""
    mask = writer.node("Cast", ["attention_mask"], "mask", to=TensorProto.FLOAT)
    one = writer.constant("one", np.array(1.0, np.float32))
    mask = writer.node("Sub", [one, mask], "mask.padding")
    mask = writer.node("Mul", [mask, writer.constant("masked", np.array(_MASKED, np.float32))], "mask.scores")
    axes = writer.constant("axes.1.2", np.array([1, 2], np.int64))
    return writer.node("Unsqueeze", [mask, axes], "mask.broadcast")


def _layer(writer: GraphWriter, state: State, x: str, scores_mask: str, name: str, *, heads: int) -> str:
    y = _attention(writer, state, x, scores_mask, f"{name}.attention", heads=heads)
    y = writer.node("Add", [y, x], f"{name}.attention.residual")
    x = _layer_norm(writer, state, y, f"{name}.attention.output.LayerNorm")
    y = _dense(writer, state, x, f"{name}.intermediate.dense")
    y = _gelu(writer, y, f"{name}.intermediate")
    y = _dense(writer, state, y, f"{name}.output.dense")
    y = writer.node("Add", [y, x], f"{name}.output.residual")
    return _layer_norm(writer, state, y, f"{name}.output.LayerNorm")


def _attention(writer: GraphWriter, state: State, x: str, scores_mask: str, name: str, *, heads: int) -> str:
    width = state[f"{name}.self.query.weight"].shape[0]
    split = writer.constant("shape.heads", np.array([0, 0, heads, width // heads], np.int64))
    joined = writer.constant("shape.joined", np.array([0, 0, width], np.int64))
    parts = {}
    for part, order in (("query", (0, 2, 1, 3)), ("key", (0, 2, 3, 1)), ("value", (0, 2, 1, 3))):
        y = _dense(writer, state, x, f"{name}.self.{part}")
        y = writer.node("Reshape", [y, split], f"{name}.{part}.split")
        parts[part] = writer.node("Transpose", [y], f"{name}.{part}.heads", perm=order)
    y = writer.node("MatMul", [parts["query"], parts["key"]], f"{name}.products")
    scale = writer.constant("scale", np.array(1 / math.sqrt(width // heads), np.float32))
    y = writer.node("Mul", [y, scale], f"{name}.scaled")
    y = writer.node("Add", [y, scores_mask], f"{name}.scores")
    y = writer.node("Softmax", [y], f"{name}.probabilities", axis=-1)
    y = writer.node("MatMul", [y, parts["value"]], f"{name}.mixed")
    y = writer.node("Transpose", [y], f"{name}.mixed.tokens", perm=(0, 2, 1, 3))
    y = writer.node("Reshape", [y, joined], f"{name}.mixed.joined")
    return _dense(writer, state, y, f"{name}.output.dense")


def _dense(writer: GraphWriter, state: State, x: str, name: str) -> str:
    """x · weightᵀ + bias. ONNX's MatMul multiplies from the right, so the weight is stored transposed."""
    weight = writer.weight(f"{name}.weight", np.ascontiguousarray(state[f"{name}.weight"].T))
    y = writer.node("MatMul", [x, weight], f"{name}.product")
    return writer.node("Add", [y, writer.weight(f"{name}.bias", state[f"{name}.bias"])], name)


def _gelu(writer: GraphWriter, x: str, name: str) -> str:
    """x · (1 + erf(x / √2)) / 2, spelled out: opset 17 has no Gelu."""
    root = writer.constant("root.2", np.array(math.sqrt(2), np.float32))
    half = writer.constant("half", np.array(0.5, np.float32))
    one = writer.constant("one", np.array(1.0, np.float32))
    y = writer.node("Erf", [writer.node("Div", [x, root], f"{name}.divided")], f"{name}.erf")
    y = writer.node("Mul", [x, writer.node("Add", [y, one], f"{name}.gate")], f"{name}.gated")
    return writer.node("Mul", [y, half], f"{name}.gelu")


def _layer_norm(writer: GraphWriter, state: State, x: str, name: str) -> str:
    inputs = [x, *(writer.weight(f"{name}.{key}", state[f"{name}.{key}"]) for key in ("weight", "bias"))]
    return writer.node("LayerNormalization", inputs, name, axis=-1, epsilon=_EPSILON)


def _mean_of_tokens(writer: GraphWriter, x: str) -> str:
    """The mean over the tokens whose mask is 1. Each text has two at least: its first and last special token."""
    axis = writer.constant("axis.2", np.array([2], np.int64))
    tokens = writer.constant("axis.1", np.array([1], np.int64))
    weights = writer.node("Unsqueeze", ["mask", axis], "pool.mask")
    total = writer.node("ReduceSum", [writer.node("Mul", [x, weights], "pool.masked"), tokens], "pool.sum", keepdims=0)
    count = writer.node("ReduceSum", [weights, tokens], "pool.count", keepdims=0)
    return writer.node("Div", [total, count], "features")
