from __future__ import annotations

import pytest

from edgetrain.errors import UsageError
from edgetrain.run.loop.learning_rate import LearningRate
from edgetrain.run.loop.settings import TrainSettings


def test_every_mistake_is_listed_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        TrainSettings(
            program_sha256="",
            inputs=("x",),
            output="y",
            loss="cros-entropy",
            epochs=0,
            steps=0,
            accumulate=0,
            learning_rate=LearningRate(peak=0.1),
            metrics=("acuracy",),
            monitor="f1",
            patience_epochs=0,
            checkpoint_steps=0,
        )
    for part in (
        "cros-entropy",
        "epochs = 0",
        "steps = 0",
        "accumulate = 0",
        "acuracy",
        "f1",
        "validation split",
        "patience = 0",
        "checkpoint_steps = 0",
    ):
        assert part in caught.value.what
    assert "`accuracy`" in caught.value.fix


@pytest.mark.parametrize(("monitor", "rises"), [("loss", False), ("accuracy", True), ("mae", False)])
def test_the_better_direction_follows_the_monitored_metric(monitor: str, *, rises: bool) -> None:
    settings = TrainSettings(
        program_sha256="",
        inputs=("x",),
        output="y",
        loss="bce",
        epochs=1,
        learning_rate=LearningRate(peak=0.1),
        metrics=("accuracy", "mae"),
        monitor=monitor,
    )
    assert settings.monitor_rises is rises
