"""Every recipe trains end to end on a slice of its data, and gets well on its way to what its header promises.

A recipe whose data or weights are not installed is skipped with the command that installs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from edgetrain.dataset.load import load_dataset
from edgetrain.errors import DataError, ModelError
from edgetrain.files.build_cache import BuildCache
from edgetrain.model.zoo import build_zoo_model
from edgetrain.pipeline.fit import fit
from edgetrain.pipeline.job import Job
from edgetrain.recipes import Recipe, list_recipes, load_recipe
from edgetrain.targets.profile import load_target


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Overrides that make a recipe short, and the accuracy that even the slice must reach."""

    overrides: tuple[str, ...]
    least: float


SLICES = {
    "digits": Slice(overrides=("train.epochs=2",), least=0.9),
    "fashion-mnist": Slice(overrides=("data.limit=1000", "data.test_limit=300", "train.epochs=2"), least=0.65),
    "efficientnet-lite0": Slice(overrides=("data.limit=80", "data.test_limit=40", "train.epochs=2"), least=0.4),
    "voice-id": Slice(overrides=("data.limit=600", "data.test_limit=200", "train.epochs=2"), least=0.5),
    "watch-gestures": Slice(overrides=("data.series.hop=128", "train.epochs=4"), least=0.55),
    "filetype": Slice(overrides=("data.bytes.most_per_class=20", "train.epochs=2"), least=0.6),
    "minilm-spam": Slice(overrides=("data.limit=96", "data.test_limit=48", "train.epochs=2"), least=0.7),
}


def installed(recipe: Recipe) -> Recipe:
    """The recipe, if all that it needs is there."""
    try:
        load_dataset(recipe.data)
        build_zoo_model(recipe.model.source.removeprefix("zoo:"))
    except (DataError, ModelError) as error:
        if "install" not in error.fix:
            raise
        pytest.skip(error.fix)
    return recipe


def test_every_recipe_has_its_slice() -> None:
    assert set(SLICES) == set(list_recipes())


@pytest.mark.compile
@pytest.mark.parametrize("name", list_recipes())
def test_a_recipe_trains_on_a_slice_of_its_data(name: str, build_cache: BuildCache, tmp_path: Path) -> None:
    recipe = installed(load_recipe(name, SLICES[name].overrides))
    job = Job(recipe=recipe, target=load_target("host"), cache=build_cache, threads=2)
    report = fit(job, tmp_path)
    assert report.test[recipe.metric] >= SLICES[name].least
    assert report.measured_peak_bytes <= report.planned_peak_bytes
