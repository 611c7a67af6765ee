from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from edgetrain.errors import UsageError
from edgetrain.graph.adapters import Adapter
from edgetrain.run.engines.engine import Array
from edgetrain.run.files.peft import CONFIG, WEIGHTS, to_safetensors, write_peft

RNG = np.random.default_rng(0)
ADAPTERS = (
    Adapter(weight="layer.0.query.weight", rank=4, alpha=8.0, transposed=True),
    Adapter(weight="head.weight", rank=2, alpha=8.0, transposed=False),
)
PARAMETERS = {
    "lora.A:layer.0.query.weight": RNG.standard_normal((4, 6)).astype(np.float32),
    "lora.B:layer.0.query.weight": RNG.standard_normal((5, 4)).astype(np.float32),
    "lora.A:head.weight": RNG.standard_normal((2, 5)).astype(np.float32),
    "lora.B:head.weight": RNG.standard_normal((2, 2)).astype(np.float32),
    "norm.weight": RNG.standard_normal(5).astype(np.float32),
}


def read_safetensors(content: bytes) -> dict[str, Array]:
    """By the format's own description, sharing nothing with the writer."""
    length = int.from_bytes(content[:8], "little")
    assert length % 8 == 0
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__")
    values = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        kind = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}[entry["dtype"]]
        values[name] = np.frombuffer(content[8 + length + start : 8 + length + end], kind).reshape(entry["shape"])
    assert max(e["data_offsets"][1] for e in header.values()) == len(content) - 8 - length
    return values


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_safetensors_gives_the_values_back(dtype: str) -> None:
    given = {"a": RNG.standard_normal((2, 3)).astype(dtype), "b.ü": np.zeros((0, 4), dtype), "c": np.ones((), dtype)}
    found = read_safetensors(to_safetensors(given))
    assert list(found) == list(given)
    for name, value in given.items():
        np.testing.assert_array_equal(found[name], value)


def test_safetensors_of_a_transposed_view_holds_its_values_not_its_memory() -> None:
    value = np.arange(6, dtype=np.float32).reshape(2, 3).T
    np.testing.assert_array_equal(read_safetensors(to_safetensors({"t": value}))["t"], value)


def test_the_folder_holds_pefts_names(tmp_path: Path) -> None:
    write_peft(tmp_path / "adapter", PARAMETERS, ADAPTERS, whole=("norm.weight",), base_model="minilm")
    found = read_safetensors((tmp_path / "adapter" / WEIGHTS).read_bytes())
    expected = {
        "base_model.model.norm.weight": "norm.weight",
        "base_model.model.layer.0.query.lora_A.weight": "lora.A:layer.0.query.weight",
        "base_model.model.layer.0.query.lora_B.weight": "lora.B:layer.0.query.weight",
        "base_model.model.head.lora_A.weight": "lora.A:head.weight",
        "base_model.model.head.lora_B.weight": "lora.B:head.weight",
    }
    assert set(found) == set(expected)
    for key, name in expected.items():
        np.testing.assert_array_equal(found[key], PARAMETERS[name])
    config = json.loads((tmp_path / "adapter" / CONFIG).read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 4, 8.0)
    assert config["rank_pattern"] == {"head": 2}
    assert config["target_modules"] == ["layer.0.query", "head"]
    assert config["modules_to_save"] == ["norm"]
    assert config["base_model_name_or_path"] == "minilm"


def test_a_run_without_adapters_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no adapters"):
        write_peft(tmp_path, PARAMETERS, ())
