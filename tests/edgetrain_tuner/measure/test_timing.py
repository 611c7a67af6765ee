"""Two calls are timed in turns; what else the machine does is not taken for theirs."""

from __future__ import annotations

from edgetrain_tuner.measure.timing import LEAST_SAMPLES, in_turns, quickest


class Machine:
    """A clock that calls move, with a disturbance every third call."""

    def __init__(self) -> None:
        self.now = 0.0
        self.order: list[str] = []

    def clock(self) -> float:
        return self.now

    def call(self, name: str, seconds: float) -> None:
        self.order.append(name)
        self.now += seconds * (3 if len(self.order) % 3 == 0 else 1)


def test_both_take_turns_and_the_quickest_counts() -> None:
    machine = Machine()
    pair = in_turns(
        lambda: machine.call("candidate", 0.01),
        lambda: machine.call("default", 0.02),
        budget_s=0.4,
        clock=machine.clock,
    )
    assert abs(pair.seconds - 0.01) < 1e-9
    assert abs(pair.default_seconds - 0.02) < 1e-9
    turns = machine.order[2:]
    assert turns == ["candidate", "default"] * pair.n


def test_a_hopeless_candidate_is_not_timed_further() -> None:
    machine = Machine()
    pair = in_turns(lambda: machine.call("c", 1.0), lambda: machine.call("d", 0.01), budget_s=99.0, clock=machine.clock)
    assert pair.n == LEAST_SAMPLES


def test_short_calls_are_repeated_within_a_sample() -> None:
    machine = Machine()
    seconds = quickest(lambda: machine.call("d", 1e-5), budget_s=1e-3, clock=machine.clock)
    assert len(machine.order) > 2 + 4 * 10
    assert 1e-5 <= seconds <= 3e-5
