from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

from edgetrain.dataset.convert import Conversion
from edgetrain.dataset.samples import Dataset, Part
from edgetrain.errors import DataError
from edgetrain.graph.ir import Role
from edgetrain.program.manifest import Manifest, TensorRecord
from edgetrain.run.loop.feed import DatasetFeed
from edgetrain.run.loop.learning_rate import LearningRate
from edgetrain.run.loop.settings import TrainSettings
from edgetrain.run.loop.warm_up import warm_up

BATCH, CLASSES = 2, 3
SETTINGS = TrainSettings(
    program_sha256="",
    inputs=("x",),
    output="y",
    loss="cross-entropy",
    epochs=1,
    learning_rate=LearningRate(peak=1.0, schedule="cosine"),
    metrics=("accuracy", "f1"),
)


def _manifest(width: int) -> Manifest:
    def tensor(shape: tuple[int, ...], dtype: str, role: Role) -> TensorRecord:
        return TensorRecord(offset=0, shape=shape, dtype=dtype, role=role)

    return Manifest(
        files={},
        library="",
        target_name="",
        triple="",
        cpu="",
        versions={},
        planned_peak_bytes=0,
        arena_bytes=0,
        persistent_bytes=0,
        saved_bytes=0,
        parameters_bytes=0,
        page_file_bytes=0,
        planned_seconds=0.0,
        planned_joules=0.0,
        functions=(),
        tensors={
            "x": tensor((BATCH, width), "float32", Role.INPUT),
            "train.labels": tensor((BATCH,), "int64", Role.INPUT),
            "evaluate.y": tensor((BATCH, CLASSES), "float32", Role.OUTPUT),
        },
    )


def _feed() -> DatasetFeed:
    rows = np.arange(14, dtype=np.float32).reshape(7, 2)
    part = Part(features=rows, labels=np.arange(7) % CLASSES)
    return DatasetFeed(Dataset(name="count", train=part), batch=BATCH, seed=1, conversion=Conversion())


def test_warming_up_leaves_no_file_and_the_batches_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    warmed_up, fresh = _feed(), _feed()
    warm_up(_manifest(width=2), warmed_up, SETTINGS)
    assert list(tmp_path.iterdir()) == []
    warmed_up.seek((0, 0))
    for _ in range(3):
        batches = [({"x": np.zeros((BATCH, 2), np.float32)}, np.zeros(BATCH, np.int64)) for _ in range(2)]
        for feed, (inputs, labels) in zip((warmed_up, fresh), batches, strict=True):
            feed.fill(inputs, labels)
        np.testing.assert_array_equal(batches[0][0]["x"], batches[1][0]["x"])
        np.testing.assert_array_equal(batches[0][1], batches[1][1])


def test_data_that_does_not_fit_is_refused_as_in_the_run() -> None:
    with pytest.raises(DataError):
        warm_up(_manifest(width=5), _feed(), SETTINGS)
