from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from edgetrain.errors import UsageError
from edgetrain.graph.adapters import Adapter
from edgetrain.run.files.peft import CONFIG, WEIGHTS, write_peft

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


def test_the_folder_holds_pefts_names(tmp_path: Path) -> None:
    write_peft(tmp_path / "adapter", PARAMETERS, ADAPTERS, whole=("norm.weight",), base_model="minilm")
    found = load_file(tmp_path / "adapter" / WEIGHTS)
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


def test_an_adapter_of_ours_is_replaced_and_other_files_stay(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    for base_model in ("one", "two"):
        write_peft(tmp_path, PARAMETERS, ADAPTERS, base_model=base_model)
    assert json.loads((tmp_path / CONFIG).read_text())["base_model_name_or_path"] == "two"
    assert (tmp_path / "README.md").read_text() == "mine"


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_an_adapter_of_somebody_else_is_never_replaced(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(UsageError, match=f"{name}` is not a file that edgetrain wrote"):
        write_peft(tmp_path, PARAMETERS, ADAPTERS)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"{}"]


def test_an_adapter_of_ours_that_was_trained_on_is_never_replaced(tmp_path: Path) -> None:
    write_peft(tmp_path, PARAMETERS, ADAPTERS)
    (tmp_path / WEIGHTS).write_bytes(b"trained on")
    with pytest.raises(UsageError, match="was changed since"):
        write_peft(tmp_path, PARAMETERS, ADAPTERS)
    assert (tmp_path / WEIGHTS).read_bytes() == b"trained on"
