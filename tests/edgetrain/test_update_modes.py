"""What to update, from the recipe to the exported model: the five stages on the bundled data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from edgetrain.files.build_cache import BuildCache
from edgetrain.graph.ir import evaluated
from edgetrain.pipeline.fit import fit
from edgetrain.pipeline.job import Job
from edgetrain.recipes import load_recipe
from edgetrain.run.engines.engine import Array
from edgetrain.run.files.trained import open_run, trained_engine
from edgetrain.targets.profile import load_target

SMALL = ("train.epochs=1", "train.batch=8", "data.limit=96", "data.test_limit=32")
# The overrides of a mode, and the parameters of the exported model that training must leave alone.
CASES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "lora": (("update.mode=lora", "update.rank=2", "update.targets=['conv1.*']", "metric=f1"), ("conv0.weight",)),
    "sparse": (("update.mode=sparse", "update.budget=40kB"), ()),
    "last-k": (("update.mode=last-k", "update.last=2", "train.label_smoothing=0.1"), ("conv0.weight", "conv0.bias")),
    "fold": (("model.batchnorm=fold", "model.source=zoo:digits-cnn-bn", "train.loss=focal"), ()),
}


@pytest.mark.compile
@pytest.mark.usefixtures("compiler_here")
@pytest.mark.parametrize("name", CASES)
def test_the_exported_model_is_the_trained_one(name: str, build_cache: BuildCache, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="pip install onnxruntime")
    overrides, untouched = CASES[name]
    said: list[str] = []
    job = Job(
        recipe=load_recipe("digits", (*SMALL, *overrides)),
        target=load_target("host"),
        cache=build_cache,
        threads=2,
        inform=said.append,
    )
    report = fit(job, tmp_path / "run")
    assert report.measured_peak_bytes <= report.planned_peak_bytes
    assert any(line.startswith(f"update {job.recipe.update.mode}: ") for line in said)
    run = open_run(tmp_path / "run")
    with trained_engine(run, threads=1) as engine:
        data = engine.tensor(run.inputs[0])
        data[...] = np.random.default_rng(0).uniform(size=data.shape)
        engine.call("evaluate")
        expected = engine.tensor(evaluated(run.output)).copy()
        session = runtime.InferenceSession(str(tmp_path / "run" / "model.onnx"), providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {run.inputs[0]: np.array(data)})
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    exported = initializers(onnx.load(str(tmp_path / "run" / "model.onnx")))
    start = initializers(onnx.load(str(compiled_model(job))))
    assert exported.keys() == start.keys()
    for parameter in untouched:
        np.testing.assert_array_equal(exported[parameter], start[parameter])
    assert any(not np.array_equal(exported[n], start[n]) for n in exported), "nothing was trained"


def compiled_model(job: Job) -> Path:
    """The file that was compiled: with its new head, or folded."""
    from edgetrain.dataset.load import load_dataset
    from edgetrain.pipeline.resolve import resolve
    from edgetrain.pipeline.stages import compile_job

    return compile_job(resolve(job, load_dataset(job.recipe.data))).compiled.model


def initializers(model: onnx.ModelProto) -> dict[str, Array]:
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
