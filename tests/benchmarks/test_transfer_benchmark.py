"""The benchmark's own arithmetic: who gives, who receives, and shares of the best."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="pip install torch==2.13.0")

from benchmarks.transfer import USUAL, families, means, ratios_told, search_ratio
from benchmarks.transfer_networks import NETWORKS, Network, NetworkKernel, covered_share, donor_of
from benchmarks.transfer_search import Event, Searched
from edgetrain_tuner.measure.bench import Subject
from edgetrain_tuner.measure.outcome import Outcome
from edgetrain_tuner.schedule import Schedule


def test_a_family_is_one_kernel_in_several_shapes() -> None:
    found = {family.name: family for family in families(["all"])}
    assert len(found) == 4 * 3 + 3
    for family in found.values():
        shapes = [family.receiver.shape, *(donor.shape for donor in family.donors)]
        assert len(shapes) == len(set(shapes)) >= 3
        assert {donor.family for donor in family.donors} == {family.receiver.family}
    assert [family.name for family in families(["depthwise"])] == [
        f"depthwise {part}" for part in ("forward", "data gradient", "weight gradient")
    ]


def test_means_are_geometric_and_leave_out_what_was_not_measured() -> None:
    rows = [
        {"rule of best": 0.5, "rule search s": 0.0, "long of best": 1.0, "long search s": 30.0},
        {"rule of best": 2.0, "rule search s": 0.0, "long of best": 1.0, "long search s": 50.0},
    ]
    rule, long = means(rows)
    assert (rule["way"], rule["kernels"], rule["mean of best"], rule["least"]) == ("rule", 2, pytest.approx(1.0), 0.5)
    assert (long["way"], long["search s a kernel"]) == ("long", 40.0)


def _searched(*trials: tuple[float, float]) -> Searched:
    """Trials as (seconds since the beginning, speedup)."""
    events = tuple(
        Event(
            seconds=seconds,
            schedule=Schedule("r", {"n": (number,)}),
            outcome=Outcome(status="measured", seconds=1 / speedup, default_seconds=1.0, n=4),
        )
        for number, (seconds, speedup) in enumerate(trials)
    )
    return Searched(default=Schedule("r", {}), default_seconds=1.0, events=events, search_s=9.0, opened_s=0.5)


def test_what_is_measured_without_being_asked_for_is_among_the_families() -> None:
    assert {family.name for family in families(USUAL)} == set(USUAL)


def test_the_best_of_the_first_trials_is_the_rules_own_without_a_margin() -> None:
    searched = _searched((1, 1.01), (2, 1.5), (3, 2.0))
    assert searched.best(1) == (searched.default, 1.0)
    assert searched.best(2)[0] == Schedule("r", {"n": (1,)})
    assert searched.best()[1] == pytest.approx(2.0)


def test_the_ratio_is_of_times_to_the_same_speed() -> None:
    deep = _searched((10, 0.8), (19.5, 1.2), (40, 1.1))
    assert search_ratio(deep, _searched((1.5, 1.3), (9, 1.5))) == pytest.approx(20 / 2)
    assert search_ratio(deep, _searched((1.5, 1.1))) is None
    assert search_ratio(_searched((9.5, 0.7)), _searched()) == pytest.approx(10 / 0.5), "the rule's own is as fast"


def test_kernels_where_the_speed_was_not_reached_are_counted() -> None:
    rows: list[dict[str, float | None]] = [{"search ratio": ratio} for ratio in (10.0, 40.0, None)]
    assert "2 of 3 kernels, in 1/20.0 of its search time" in ratios_told(rows)
    assert "none of 1" in ratios_told([{"search ratio": None}])


def _network(name: str, **seconds: float) -> Network:
    subject = Subject(function=None, outputs=1)
    kernels = (NetworkKernel(class_=c, subject=subject, calls=1, seconds=s) for c, s in seconds.items())
    return Network(name=name, kernels=tuple(kernels))


def test_the_donor_has_the_classes_that_take_most_of_the_receivers_time() -> None:
    receiver = _network("r", convolution=6.0, product=3.0, sum=1.0)
    products, convolutions = _network("p", product=1.0, sum=1.0), _network("c", convolution=1.0)
    assert covered_share(receiver, products) == pytest.approx(0.4)
    assert donor_of(receiver, [receiver, products, convolutions]) is convolutions
    assert donor_of(receiver, [receiver, _network("s", softmax=1.0)]) is None
    assert donor_of(receiver, [receiver]) is None


def test_there_are_as_many_networks_as_in_the_paper() -> None:
    assert len(NETWORKS) == 11
