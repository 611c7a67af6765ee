"""A model with two inputs, one of them whole numbers, from file to prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from edgetrain.dataset.load import load_dataset
from edgetrain.dataset.samples import NamedSamples
from edgetrain.errors import DataError
from edgetrain.files.build_cache import BuildCache
from edgetrain.model.onnx_build import GraphWriter
from edgetrain.pipeline.fit import fit
from edgetrain.pipeline.job import Job
from edgetrain.recipes import recipe_for_model
from edgetrain.run.files.trained import evaluate_run, open_run, predict
from edgetrain.targets.profile import load_target

SAMPLES, WORDS = 64, 6


def write_model(path: Path) -> None:
    """`ids` (batch, 2) through a table of vectors, beside `values` (batch, 3), into one dense layer."""
    rng = np.random.default_rng(0)
    writer = GraphWriter()
    table = writer.weight("table", rng.standard_normal((WORDS, 4)).astype(np.float32))
    words = writer.node("Gather", [table, "ids"], "words", axis=0)
    joined = writer.node("Concat", [writer.node("Flatten", [words], "flat", axis=1), "values"], "features", axis=1)
    weight = rng.standard_normal((2, 11)).astype(np.float32)
    writer.dense(joined, weight, np.zeros(2, np.float32), "logits", layer="head")
    inputs = {"ids": (TensorProto.INT64, [2]), "values": (TensorProto.FLOAT, [3])}
    onnx.save(writer.finish_with("two", inputs=inputs, classes=2), path)


def arrays() -> dict[str, Any]:
    """The label needs both inputs: the first word has an even number, or the first value is large."""
    rng = np.random.default_rng(1)
    ids, values = rng.integers(0, WORDS, (SAMPLES, 2)), rng.standard_normal((SAMPLES, 3)).astype(np.float32)
    return {"x.ids": ids, "x.values": values, "y": ((ids[:, 0] % 2 == 0) | (values[:, 0] > 1)).astype(np.int64)}


def job_of(folder: Path, cache: BuildCache, data: dict[str, Any]) -> Job:
    write_model(folder / "two.onnx")
    np.savez(folder / "data.npz", **data)
    overrides = ("train.batch=8", "train.epochs=12", "train.optimizer=adam", "train.learning_rate=0.05")
    source = f"data.source={folder / 'data.npz'}"
    recipe = recipe_for_model(str(folder / "two.onnx"), (source, "data.validation=0.25", *overrides))
    return Job(recipe=recipe, target=load_target("host"), cache=cache, threads=1)


@pytest.mark.compile
@pytest.mark.usefixtures("compiler_here")
def test_a_model_with_two_inputs_learns_and_predicts(build_cache: BuildCache, tmp_path: Path) -> None:
    data = arrays()
    job = job_of(tmp_path, build_cache, data)
    report = fit(job, tmp_path / "run")
    assert report.losses[-1] < report.losses[0] / 2
    run = open_run(tmp_path / "run")
    assert run.inputs == ("ids", "values")
    logits = predict(run, NamedSamples(arrays={"ids": data["x.ids"], "values": data["x.values"]}), threads=1)
    assert np.mean(logits.argmax(axis=1) == data["y"]) > 0.85
    held_out = load_dataset(job.recipe.data).evaluation
    assert held_out is not None
    assert evaluate_run(run, held_out, threads=1)["accuracy"] == pytest.approx(report.test["accuracy"])


@pytest.mark.compile
@pytest.mark.usefixtures("compiler_here")
def test_an_input_that_the_data_lacks_is_named_before_training(build_cache: BuildCache, tmp_path: Path) -> None:
    data = arrays()
    data["x.value"] = data.pop("x.values")
    with pytest.raises(DataError, match="lacks `values`"):
        fit(job_of(tmp_path, build_cache, data), tmp_path / "run")
    assert not (tmp_path / "run").exists()
