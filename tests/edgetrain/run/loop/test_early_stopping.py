from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.run.loop.early_stopping import Best, judge, reason_to_keep


@pytest.mark.parametrize("higher_is_better", [True, False])
@given(values=st.lists(st.integers(0, 5), min_size=1))
def test_the_best_is_the_first_of_the_best_values(higher_is_better: bool, values: list[int]) -> None:
    best: Best | None = None
    for epoch, value in enumerate(values, start=1):
        best = judge(best, value=value, step=10 * epoch, epoch=epoch, higher_is_better=higher_is_better)
    index = values.index((max if higher_is_better else min)(values))
    assert best == Best(
        value=values[index],
        step=10 * (index + 1),
        epoch=index + 1,
        stale_epochs=len(values) - index - 1,
        ties=values.count(values[index]),
    )


def test_a_gain_must_exceed_the_least_gain() -> None:
    best = Best(value=0.5, step=1, epoch=1)
    small = judge(best, value=0.55, step=2, epoch=2, higher_is_better=True, least_gain=0.1)
    large = judge(best, value=0.65, step=2, epoch=2, higher_is_better=True, least_gain=0.1)
    assert (small.value, small.stale_epochs) == (0.5, 1)
    assert (large.value, large.stale_epochs) == (0.65, 0)


@given(epochs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1))
def test_of_equal_metrics_the_lowest_loss_is_kept_then_the_earliest(epochs: list[tuple[int, int]]) -> None:
    best: Best | None = None
    for epoch, (value, loss) in enumerate(epochs, start=1):
        best = judge(best, value=value, loss=loss, step=epoch, epoch=epoch, higher_is_better=True)
    assert best is not None
    index = min(range(len(epochs)), key=lambda i: (-epochs[i][0], epochs[i][1], i))
    assert (best.value, best.loss, best.epoch) == (*epochs[index], index + 1)
    assert best.ties == sum(value == best.value for value, _ in epochs)


def test_a_tie_is_kept_and_patience_counts_on() -> None:
    best = Best(value=1.0, step=1, epoch=1, loss=0.4)
    tie = judge(best, value=1.0, loss=0.1, step=2, epoch=2, higher_is_better=True)
    assert (tie.epoch, tie.stale_epochs) == (2, 1)
    assert judge(tie, value=1.0, loss=0.2, step=3, epoch=3, higher_is_better=True).stale_epochs == 2


def test_a_best_epoch_without_a_loss_stays_the_first_of_equals() -> None:
    best = Best(value=1.0, step=1, epoch=1)
    assert judge(best, value=1.0, loss=0.1, step=2, epoch=2, higher_is_better=True).epoch == 1


def test_the_reason_names_the_metric_and_the_ties() -> None:
    best = Best(value=1.0, step=3, epoch=3, loss=0.1, ties=2)
    assert reason_to_keep(best, metric="accuracy", higher_is_better=True) == (
        "the highest validation accuracy, 1; 2 epochs tie there, and it has the lowest loss"
    )
    lowest = Best(value=0.25, step=1, epoch=1, loss=0.25)
    assert reason_to_keep(lowest, metric="loss", higher_is_better=False) == ("the lowest validation loss, 0.25")
