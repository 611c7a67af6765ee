"""Augmented runs that stop and go on end with the bits of those that never stopped."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from edgetrain.dataset.augment.augmentation import Augmentation
from edgetrain.dataset.convert import Conversion
from edgetrain.dataset.load import load_dataset
from edgetrain.dataset.samples import Dataset, Part
from edgetrain.errors import UsageError
from edgetrain.files.build_cache import BuildCache
from edgetrain.pipeline.fit import fit
from edgetrain.pipeline.job import Job
from edgetrain.recipes import AugmentSection, Recipe, load_recipe
from edgetrain.run.files.trained import evaluate_run, open_run
from edgetrain.run.loop.callbacks import Callback, Logs
from edgetrain.run.loop.feed import DatasetFeed
from edgetrain.run.loop.train import train
from edgetrain.targets.profile import load_target
from tests.edgetrain.run.small_run import CLASSES, FEATURES, SETTINGS, STEPS, SoftmaxEngine

AUGMENTED = AugmentSection(flip="horizontal", shift=0.3, brightness=0.3, cutout=0.3, noise=0.2)


class StopAfter(Callback):
    def __init__(self, step: int) -> None:
        self._step = step

    def on_step_end(self, step: int, logs: Logs) -> None:
        self.stop_training = step >= self._step


def run(out: Path, section: AugmentSection, *, resume: bool = False, stop: int = STEPS) -> tuple[bytes, object]:
    random = np.random.default_rng(3)
    pictures = random.integers(0, 256, (14, 1, FEATURES), dtype=np.uint8)
    part = Part(features=pictures, labels=random.integers(0, CLASSES, 14))
    feed = DatasetFeed(
        Dataset(name="pictures", train=part, validation=part),
        batch=4,
        seed=0,
        conversion=Conversion(mean=(0.5,)),
        augmentation=Augmentation.of(section, part),
    )
    engine = SoftmaxEngine()
    outcome = train(engine, feed, SETTINGS, out=out, resume=resume, callbacks=(StopAfter(stop),))
    return bytes(engine.saved), outcome.progress


@pytest.mark.parametrize("stop_step", range(1, STEPS))
def test_resuming_after_any_step_gives_the_same_bits(tmp_path: Path, stop_step: int) -> None:
    whole = run(tmp_path / "whole", AUGMENTED)
    run(tmp_path / "parts", AUGMENTED, stop=stop_step)
    assert run(tmp_path / "parts", AUGMENTED, resume=True) == whole


def test_augmentation_changes_what_is_learned(tmp_path: Path) -> None:
    plain, augmented = (run(tmp_path / str(i), s)[0] for i, s in enumerate((AugmentSection(), AUGMENTED)))
    assert plain != augmented


OVERRIDES = (
    "train.epochs=2",
    "train.batch=8",
    "data.limit=96",
    "data.test_limit=32",
    "data.augment.flip=horizontal",
    "data.augment.rotate=10",
    "data.augment.mixup=0.4",
    "data.augment.cutmix=1",
    "train.class_weights=balanced",
)


def _job(build_cache: BuildCache, recipe: Recipe) -> Job:
    return Job(recipe=recipe, target=load_target("host"), cache=build_cache, threads=2)


@pytest.mark.compile
@pytest.mark.usefixtures("compiler_here")
def test_a_program_trains_on_mixed_labels_with_weights_and_resumes_to_the_same_bits(
    build_cache: BuildCache, tmp_path: Path
) -> None:
    job = _job(build_cache, load_recipe("digits", OVERRIDES))
    whole = fit(job, tmp_path / "whole")
    fit(job, tmp_path / "parts", callbacks=(StopAfter(7),))
    stored = Recipe.from_json((tmp_path / "parts" / "recipe.json").read_text())
    parts = fit(dataclasses.replace(job, recipe=stored), tmp_path / "parts", resume=True)
    assert parts.parameters_sha256 == whole.parameters_sha256
    assert parts.losses == whole.losses
    test = load_dataset(job.recipe.data).test
    assert test is not None
    assert evaluate_run(open_run(tmp_path / "whole"), test, threads=2) == pytest.approx(whole.test)
    weights = stored.train.class_weights
    assert isinstance(weights, tuple)
    assert len(weights) == 10
    assert len(set(weights)) > 1
    report = json.loads((tmp_path / "whole" / "report.json").read_text())
    assert report["recipe"]["train"]["class_weights"] == list(weights)


def test_what_the_data_is_not_is_refused_before_anything_is_compiled(tmp_path: Path) -> None:
    np.savez(tmp_path / "table.npz", x=np.zeros((20, 12), np.float32), y=np.arange(20) % 2)
    recipe = load_recipe("digits", (f"data.source={tmp_path / 'table.npz'}", "data.augment.flip=both", "train.batch=4"))
    nothing_compiled = BuildCache(tmp_path / "builds")
    with pytest.raises(UsageError, match="the samples are rows of numbers: `data"):
        fit(_job(nothing_compiled, recipe), tmp_path / "run")
    assert not (tmp_path / "builds").exists()
