"""The trained model as ONNX, in somebody else's runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.models import small_networks as models
from benchmarks.references.trained import make_batches, relative_difference
from benchmarks.references.workshop import FixedBatches, Workshop, outputs_of, parameters_of, settings_of
from edgetrain.graph.options import OptimizerOptions, TrainOptions
from edgetrain.run.files.export import write_trained_onnx
from edgetrain.run.loop.train import train

pytestmark = pytest.mark.compile


@pytest.mark.parametrize("name", ["batch_norm_cnn", "resnet18"])
def test_the_exported_model_puts_out_in_onnxruntime_what_evaluate_does(
    name: str, workshop: Workshop, tmp_path: Path
) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="pip install onnxruntime")
    model = getattr(models, name)()
    image = {"batch_norm_cnn": models.BATCH_NORM_IMAGE, "resnet18": models.RESNET_IMAGE}[name]
    options = TrainOptions(batch=4, optimizer=OptimizerOptions(kind="sgd", momentum=0.9, weight_decay=1e-4))
    compiled = workshop.compile(model, options)
    batches = make_batches(image, models.CLASSES, loss=options.loss, size=4, seed=9)
    program = workshop.build(compiled, workshop.plan(compiled))
    with workshop.engine(program, threads=2) as engine:
        before = outputs_of(engine, compiled, batches[0].data)
        train(engine, FixedBatches(batches), settings_of(compiled, options, 0.02), out=tmp_path)
        expected = outputs_of(engine, compiled, batches[0].data)
        write_trained_onnx(compiled.model, parameters_of(engine, program), tmp_path / "trained.onnx")
    session = runtime.InferenceSession(str(tmp_path / "trained.onnx"), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"image": batches[0].data})
    assert relative_difference(found, expected) < 1e-4
    assert relative_difference(before, expected) > 1e-2, "training changed nothing: an old model would pass"
