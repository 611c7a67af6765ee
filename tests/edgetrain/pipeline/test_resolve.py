"""Claims about what is decided before a job's stages begin."""

from __future__ import annotations

import numpy as np
import pytest

from edgetrain.dataset.load import load_dataset
from edgetrain.errors import UsageError
from edgetrain.pipeline.job import Job
from edgetrain.pipeline.resolve import resolve, resolve_without_data
from edgetrain.recipes import load_recipe, recipe_for_model
from edgetrain.targets.profile import load_target

BALANCED = "train.class_weights=balanced"


def job_of(*overrides: str) -> Job:
    return Job(recipe=load_recipe("digits", overrides), target=load_target("host"))


def test_balanced_weights_are_counted_in_the_training_part_and_written_into_the_recipe() -> None:
    job = job_of(BALANCED, "data.limit=120")
    dataset = load_dataset(job.recipe.data)
    resolved = resolve(job, dataset)
    counts = np.bincount(dataset.train.labels, minlength=10)
    assert resolved.recipe.train.class_weights == pytest.approx(counts.sum() / (10 * counts))
    assert resolve(resolved, dataset) == resolved
    assert resolve_without_data(job) == resolved


def test_a_job_that_leaves_nothing_open_stays_as_it_is() -> None:
    job = job_of()
    assert resolve_without_data(job) == job
    weighted = job_of("train.class_weights=[1, 2]")
    assert resolve_without_data(weighted) == weighted


def test_balanced_weights_need_data() -> None:
    recipe = recipe_for_model("zoo:digits-cnn", (BALANCED,), needs_data=False)
    with pytest.raises(UsageError, match="needs data to count the classes in"):
        resolve_without_data(Job(recipe=recipe, target=load_target("host")))


def test_augmentation_that_does_not_go_with_the_data_is_refused() -> None:
    job = job_of("data.augment.saturation=0.2")
    with pytest.raises(UsageError, match="these have 1") as caught:
        resolve(job, load_dataset(job.recipe.data))
    assert caught.value.fix == "set data.augment.saturation=0"
