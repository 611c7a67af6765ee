"""A unit that float32 puts on the other side of a kink is found; a wrong gradient is not taken for one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.models import real_networks as real_models
from benchmarks.models import small_networks as models
from benchmarks.references import torch_reference
from benchmarks.references.kinks import KinkWatch, Reference, assert_agrees_up_to_kinks, nearest_reference
from benchmarks.references.trained import Trained, agrees, assert_agrees, make_batches
from edgetrain.graph.options import OptimizerOptions, TrainOptions

pytestmark = pytest.mark.usefixtures("needs_torch")

OPTIONS = TrainOptions(batch=4, optimizer=OptimizerOptions(kind="sgd", momentum=0.9))
STEPS = 6
RATE = 0.005


def reference(seed: int) -> Reference:
    """Six steps of the ResNet-shaped model in float64."""
    model = models.resnet18()
    batches = make_batches(models.RESNET_IMAGE, models.CLASSES, loss="cross-entropy", size=4, seed=seed, count=STEPS)

    def run(watch: KinkWatch) -> Trained:
        return torch_reference.train_in_torch(model, batches, OPTIONS, learning_rate=RATE, watch=watch)

    return run


WATCHED = {
    "relu, pool": (models.resnet18, models.RESNET_IMAGE),
    "clip": (models.mobilenet, models.MOBILENET_IMAGE),
    "pool along one axis": (real_models.audio_network, real_models.AUDIO_CLIP),
}


@pytest.mark.parametrize("name", WATCHED)
def test_watching_changes_nothing(name: str) -> None:
    make, shape = WATCHED[name]
    batches = make_batches(shape, models.CLASSES, loss="cross-entropy", size=4, seed=1, count=3)
    plain = torch_reference.train_in_torch(make(), batches, OPTIONS, learning_rate=RATE)
    watched = torch_reference.train_in_torch(make(), batches, OPTIONS, learning_rate=RATE, watch=KinkWatch())
    assert_agrees(watched, plain, value=1e-12, update=1e-9)


@pytest.mark.parametrize("seed", [7, 9])
def test_a_unit_on_the_other_side_of_its_kink_is_found(seed: int) -> None:
    run = reference(seed)
    watch = KinkWatch()
    plain = run(watch)
    unit = next(u for u in sorted(watch.near) if u.node.startswith("stage"))  # a pool may hide the stem's
    found = run(KinkWatch(flipped=frozenset({unit})))
    assert not agrees(found, plain), "the flip changed nothing: this seed tests nothing"
    assert nearest_reference(found, run).flipped == {unit}


def test_a_gradient_that_is_one_percent_wrong_is_no_kink() -> None:
    run = reference(5)
    right = run(KinkWatch())
    name = "stage1.0.conv0.weight"
    wrong = replace(right, final={**right.final, name: right.final[name] + 0.01 * right.update(name)})
    with pytest.raises(AssertionError, match=f"update of `{name}` is off"):
        assert_agrees_up_to_kinks(wrong, run)
