from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from benchmarks.importing.onnx_models import mlp, model_of
from edgetrain.model.outline import read_outline, serialised

node = helper.make_node


def stored(**weights: Any) -> onnx.ModelProto:
    return model_of([node("Relu", ["x"], ["y"])], inputs={"x": ["n", 3]}, outputs=["y"], stored=weights)


def as_floats() -> onnx.ModelProto:
    """As some exporters write tensors: a field of numbers, no bytes."""
    model = stored()
    model.graph.initializer.append(helper.make_tensor("w", onnx.TensorProto.FLOAT, [2000], np.ones(2000)))
    return model


def twice() -> onnx.ModelProto:
    """Two tensors of one name, which no checker accepts, and which must not lose anything all the same."""
    model = stored(w=np.zeros(4000, np.float32))
    model.graph.initializer.append(numpy_helper.from_array(np.ones(4000, np.float32), "w"))
    return model


MODELS = {
    "small": mlp(),
    "large": stored(w=np.arange(300_000, dtype=np.float32), v=np.arange(5000, dtype=np.int64), b=np.ones(3)),
    "half": stored(w=np.arange(5000, dtype=np.float16)),
    "floats": as_floats(),
    "twice": twice(),
    "empty": onnx.ModelProto(),
}


def read_and_written(model: bytes, folder: Path) -> onnx.ModelProto:
    path = folder / "model.onnx"
    path.write_bytes(model)
    return onnx.ModelProto.FromString(b"".join(serialised(read_outline(path))))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_is_read_and_written_is_the_same(name: str, tmp_path: Path) -> None:
    assert read_and_written(MODELS[name].SerializeToString(), tmp_path) == MODELS[name]


@given(sizes=st.lists(st.integers(0, 3000), max_size=6), words=st.text(max_size=300))
def test_any_sizes_of_tensors_and_texts_come_back(
    sizes: list[int], words: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = stored(**{f"t{i}": np.full(size, i, np.float32) for i, size in enumerate(sizes)})
    model.doc_string = words
    model.metadata_props.add(key="words", value=words)
    assert read_and_written(model.SerializeToString(), tmp_path_factory.mktemp("model")) == model


def test_large_contents_stay_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(MODELS["large"], str(path))
    outline = read_outline(path)
    assert sorted(outline.contents) == ["v", "w"]
    assert outline.proto.ByteSize() < 1000
    assert max(len(piece) for piece in serialised(outline)) <= 1 << 20


def test_a_file_that_is_cut_short_meanwhile_is_told(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(MODELS["large"], str(path))
    outline = read_outline(path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(OSError, match="was cut short"):
        list(serialised(outline))
