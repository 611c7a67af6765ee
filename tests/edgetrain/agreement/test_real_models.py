"""Steps of models of their real depth and width against PyTorch, on inputs small enough for a test.

`python -m benchmarks.agreement --real` compares ten steps of all of them at their real input sizes.
"""

from __future__ import annotations

from functools import partial

import pytest

from benchmarks.models import real_networks as real
from benchmarks.references.torch_reference import train_in_torch
from benchmarks.references.trained import differences
from benchmarks.references.workshop import Workshop
from edgetrain.errors import ModelError

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("needs_torch")]

SEED = 5
LOSS_TOLERANCE = 1e-3
CASES = {
    "resnet-18": (real.image_case(partial(real.resnet18, 64), 64, batchnorm="train"), 4),
    "mobilenet-v2": (real.image_case(partial(real.mobilenet_v2, 64), 64, batchnorm="frozen"), 4),
    "minilm-l6": (real.minilm_case(length=16, batch=2), 3),
    "lstm": (real.LSTM_CASE, 10),
    "audio": (real.AUDIO_CASE, 10),
}


@pytest.mark.parametrize("name", CASES)
def test_losses_agree_with_torch(name: str, workshop: Workshop) -> None:
    case, steps = CASES[name]
    try:
        model = case.model()
    except ModelError as error:
        pytest.skip(error.fix)
    batches = case.batches(SEED, steps)
    expected = train_in_torch(model, batches, case.options, learning_rate=case.learning_rate)
    found = workshop.train_model(model, batches, case.options, learning_rate=case.learning_rate)
    assert differences(found, expected).loss <= LOSS_TOLERANCE
    assert any(expected.update(name).any() for name in expected.final)
