"""The search finds what is better, spends what it may, and never ends with less than the default."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import pytest

from edgetrain_tuner.measure.outcome import MeasuringLostError, Outcome
from edgetrain_tuner.schedule import Schedule
from edgetrain_tuner.search import EXPLORED, Allowance, Entrant, Explorer, SearchProgress, Tunable, race, search


def _schedule(x: int, y: int) -> Schedule:
    return Schedule("r", {"x": (x,), "y": (y,)})


def _neighbours(schedule: Schedule) -> list[tuple[str, Schedule]]:
    (x,), (y,) = schedule.parameters["x"], schedule.parameters["y"]
    moves = [("x", x - 1, y), ("x", x + 1, y), ("y", x, y - 1), ("y", x, y + 1)]
    return [(name, _schedule(a, b)) for name, a, b in moves if 0 <= a <= 9 and 0 <= b <= 9]


def _bowl(x: int, y: int) -> float:
    """Seconds, least at (7, 2)."""
    return 1.0 + 0.1 * abs(x - 7) + 0.2 * abs(y - 2)


class Landscape:
    """Measures by a formula; the default is at (4, 4)."""

    def __init__(self, seconds: Callable[[int, int], float], status: Callable[[int, int], str] = lambda *_: "measured"):
        self._seconds, self._status = seconds, status
        self.asked: list[tuple[int, Schedule]] = []
        self.now = 0.0

    def measure(self, number: int, schedule: Schedule, *, budget_s: float) -> Outcome:
        self.asked.append((number, schedule))
        self.now += 1.0
        (x,), (y,) = schedule.parameters["x"], schedule.parameters["y"]
        if self._status(x, y) != "measured":
            return Outcome(status=self._status(x, y))
        return Outcome(status="measured", seconds=self._seconds(x, y), default_seconds=self._seconds(4, 4), n=5)

    def clock(self) -> float:
        return self.now


def _tunable(number: int = 0, weight: float = 1.0, starts: Sequence[Schedule] = ()) -> Tunable:
    return Tunable(number=number, weight=weight, default=_schedule(4, 4), starts=tuple(starts), neighbours=_neighbours)


def _trials(count: int, landscape: Landscape) -> Allowance:
    return Allowance(trials=count, clock=landscape.clock)


def test_descent_ends_in_the_valley() -> None:
    landscape = Landscape(_bowl)
    (found,) = search([_tunable()], landscape, _trials(100, landscape))
    assert found.best is not None
    assert found.best.schedule == _schedule(7, 2)


def test_it_stops_by_itself_where_no_neighbour_is_better() -> None:
    landscape = Landscape(_bowl)
    (found,) = search([_tunable()], landscape, _trials(1000, landscape))
    assert len(found.trials) < 30


def test_a_good_start_is_tried_first_and_saves_trials() -> None:
    landscape = Landscape(_bowl)
    (found,) = search([_tunable(starts=[_schedule(7, 2)])], landscape, _trials(1, landscape))
    assert landscape.asked[0] == (0, _schedule(7, 2))
    assert found.best is not None
    assert found.best.is_start


def test_the_default_wins_where_nothing_beats_it_by_the_margin() -> None:
    landscape = Landscape(lambda x, y: 1.0 - 0.001 * (x + y))
    (found,) = search([_tunable()], landscape, _trials(50, landscape))
    assert found.best is None
    assert found.trials


@pytest.mark.parametrize("status", ["wrong", "failed", "timed out", "crashed", "refused"])
def test_what_was_not_measured_never_wins(status: str) -> None:
    landscape = Landscape(lambda x, y: 0.1, lambda x, y: status)
    (found,) = search([_tunable()], landscape, _trials(50, landscape))
    assert found.best is None


def test_the_luckiest_of_many_is_measured_again() -> None:
    """(5, 4) shows up fast once and is slow the second time."""
    seen: set[tuple[int, int]] = set()

    def lucky(x: int, y: int) -> float:
        if (x, y) == (5, 4) and (x, y) not in seen:
            seen.add((x, y))
            return 0.5
        return 1.0

    landscape = Landscape(lucky)
    (found,) = search([_tunable()], landscape, _trials(3, landscape))
    assert found.best is None


@pytest.mark.parametrize("allowed", [1, 7, 30])
def test_no_more_trials_than_allowed_and_more_for_the_heavy_kernel(allowed: int) -> None:
    landscape = Landscape(lambda x, y: 1.0 + 0.1 * math.sin(x * 12.9 + y * 78.2))
    done: list[SearchProgress] = []
    kernels = [_tunable(0, weight=1.0), _tunable(1, weight=8.0)]
    found = search(kernels, landscape, _trials(allowed, landscape), progress=done.append)
    counts = {tuned.number: len(tuned.trials) for tuned in found}
    assert sum(counts.values()) == len(done) <= allowed
    assert counts.get(1, 0) >= counts.get(0, 0) or len(found[0].trials) < allowed
    assert found[0].number == 1


def test_time_is_shared_as_trials_are() -> None:
    landscape = Landscape(_bowl)
    kernels = [_tunable(0, weight=1.0), _tunable(1, weight=1.0)]
    search(kernels, landscape, Allowance(seconds=12.0, clock=landscape.clock))
    first = [number for number, _ in landscape.asked].index(1)
    assert 5 <= first <= 10
    assert len(landscape.asked) <= 12 + 2 * 2


def test_a_kernel_that_cannot_be_opened_is_passed_over() -> None:
    landscape = Landscape(_bowl)
    closed: list[int] = []
    found = search(
        [_tunable(0, weight=2.0), _tunable(1)],
        landscape,
        _trials(40, landscape),
        opened=lambda tunable: "no compiler" if tunable.number == 0 else "",
        closed=lambda tunable: closed.append(tunable.number),
    )
    assert [(tuned.number, tuned.failure) for tuned in found] == [(0, "no compiler"), (1, "")]
    assert closed == [1]


def _losing(landscape: Landscape, after: int) -> Landscape:
    """The landscape, whose measurer is gone after so many answers."""
    measure = landscape.measure

    def measure_or_lose(number: int, schedule: Schedule, *, budget_s: float) -> Outcome:
        if len(landscape.asked) >= after:
            raise MeasuringLostError({"what": "no route to host"})
        return measure(number, schedule, budget_s=budget_s)

    landscape.measure = measure_or_lose  # type: ignore[method-assign]
    return landscape


def test_when_what_measures_is_lost_what_was_found_is_the_answer() -> None:
    kernels = [_tunable(0, weight=2.0), _tunable(1)]
    whole = Landscape(_bowl)
    expected = search(kernels, whole, _trials(60, whole))
    for after in range(len(whole.asked)):
        landscape = _losing(Landscape(_bowl), after)
        lost: list[MeasuringLostError] = []
        found = search(kernels, landscape, _trials(60, landscape), lost=lost.append)
        assert [str(error) for error in lost] == ["no route to host"]
        assert found[:-1] == expected[: len(found) - 1]
        trials = found[-1].trials
        assert trials == expected[len(found) - 1].trials[: len(trials)]
        fastest = max((trial.outcome.speedup for trial in trials), default=0.0)
        best = found[-1].best
        assert best.outcome.speedup == fastest if best is not None else fastest < 1.03


def test_a_loss_that_nobody_listens_to_is_raised() -> None:
    landscape = _losing(Landscape(_bowl), 3)
    with pytest.raises(MeasuringLostError, match="no route to host"):
        search([_tunable()], landscape, _trials(60, landscape))


def test_what_is_checked_and_not_timed_never_wins() -> None:
    landscape = Landscape(_bowl, lambda *_: "checked")
    (found,) = search([_tunable(starts=[_schedule(7, 2)])], landscape, _trials(60, landscape))
    assert found.best is None
    assert [trial.schedule for trial in found.trials] == [
        _schedule(7, 2),
        *(s for _, s in _neighbours(_schedule(4, 4))),
    ]


def test_what_is_known_to_be_no_better_is_not_tried_again() -> None:
    landscape = Landscape(_bowl)
    (found,) = search([_tunable()], landscape, _trials(100, landscape))
    known = frozenset(trial.schedule for trial in found.trials)
    again = Landscape(_bowl)
    tunable = Tunable(number=0, weight=1.0, default=_schedule(4, 4), known=known, neighbours=_neighbours)
    search([tunable], again, _trials(100, again))
    assert not {schedule for _, schedule in again.asked} & known


def test_the_same_measurements_ask_for_the_same_trials() -> None:
    runs = []
    for _ in range(2):
        landscape = Landscape(_bowl)
        search([_tunable(0), _tunable(1)], landscape, _trials(25, landscape))
        runs.append(landscape.asked)
    assert runs[0] == runs[1]


def _entrant(number: int, weight: float, *schedules: Schedule) -> Entrant:
    return Entrant(number=number, weight=weight, schedules=schedules)


def test_a_race_tries_what_it_is_given_and_nothing_else() -> None:
    landscape = Landscape(_bowl)
    (found,) = race([_entrant(0, 1.0, _schedule(5, 4), _schedule(0, 9))], landscape, Allowance(clock=landscape.clock))
    assert found.best is not None
    assert found.best.schedule == _schedule(5, 4)
    assert {schedule for _, schedule in landscape.asked} == {_schedule(5, 4), _schedule(0, 9)}
    assert [trial.schedule for trial in found.trials] == [_schedule(5, 4), _schedule(0, 9)]


def test_a_race_begins_with_the_heaviest_and_begins_no_other_kernel_when_the_time_is_up() -> None:
    landscape = Landscape(_bowl)
    entrants = [_entrant(number, weight, _schedule(0, 9)) for number, weight in ((0, 1.0), (1, 9.0), (2, 3.0))]
    found = list(race(entrants, landscape, Allowance(seconds=2.0, clock=landscape.clock)))
    assert [tuned.number for tuned in found] == [1, 2]


def test_a_racing_schedule_that_wins_by_luck_is_measured_again_and_loses() -> None:
    class Lucky(Landscape):
        def measure(self, number: int, schedule: Schedule, *, budget_s: float) -> Outcome:
            first = not self.asked
            outcome = super().measure(number, schedule, budget_s=budget_s)
            return dataclasses.replace(outcome, seconds=outcome.default_seconds / (1.5 if first else 0.9))

    landscape = Lucky(_bowl)
    (found,) = race([_entrant(0, 1.0, _schedule(5, 4))], landscape, Allowance(clock=landscape.clock))
    assert found.best is None
    assert [round(trial.outcome.speedup, 3) for trial in found.trials] == [0.9], "the second measurement is kept"


def test_a_kernel_that_cannot_be_opened_is_named_and_the_race_goes_on() -> None:
    landscape = Landscape(_bowl)
    entrants = [_entrant(0, 2.0, _schedule(5, 4)), _entrant(1, 1.0, _schedule(5, 4))]
    closed: list[int] = []
    found = list(
        race(
            entrants,
            landscape,
            Allowance(clock=landscape.clock),
            opened=lambda entrant: "" if entrant.number else "no memory",
            closed=lambda entrant: closed.append(entrant.number),
        )
    )
    assert [(tuned.number, tuned.failure) for tuned in found] == [(0, "no memory"), (1, "")]
    assert closed == [1]


class Guesses:
    """An explorer with a list of ideas, which remembers what it was told."""

    def __init__(self, *ideas: tuple[int, int]) -> None:
        self._ideas = [_schedule(*idea) for idea in ideas]
        self.told: list[tuple[Schedule, str]] = []

    def next(self) -> Schedule | None:
        return self._ideas.pop(0) if self._ideas else None

    def tell(self, schedule: Schedule, outcome: Outcome) -> None:
        self.told.append((schedule, outcome.status))


def _explored(explorer: Explorer, starts: Sequence[Schedule] = (), known: frozenset[Schedule] = frozenset()) -> Tunable:
    tunable = _tunable(starts=starts)
    return dataclasses.replace(tunable, known=known, explorer=lambda: explorer)


def _asked(landscape: Landscape, count: int) -> list[Schedule]:
    return [schedule for _, schedule in landscape.asked[:count]]


def test_starts_come_first_then_the_explorer_for_its_share_then_the_descent() -> None:
    landscape, explorer = Landscape(_bowl), Guesses((0, 0), (9, 9), (7, 3), (0, 9), (9, 0), (1, 1), (2, 2))
    search([_explored(explorer, starts=[_schedule(5, 5)])], landscape, _trials(10, landscape))
    share = int(10 * EXPLORED)
    guesses = [_schedule(0, 0), _schedule(9, 9), _schedule(7, 3), _schedule(0, 9)]
    assert _asked(landscape, share) == [_schedule(5, 5), *guesses[: share - 1]]
    assert _asked(landscape, share + 1)[-1] in [neighbour for _, neighbour in _neighbours(_schedule(7, 3))]


def test_the_descent_goes_on_from_the_explorers_best() -> None:
    landscape = Landscape(_bowl)
    (found,) = search([_explored(Guesses((9, 1), (0, 9)))], landscape, _trials(30, landscape))
    assert found.best is not None
    assert found.best.schedule == _schedule(7, 2)


def test_what_was_tried_before_is_not_measured_again_for_the_explorer() -> None:
    landscape, explorer = Landscape(_bowl), Guesses((1, 1), (2, 2), (4, 4))
    search([_explored(explorer, known=frozenset({_schedule(1, 1)}))], landscape, _trials(6, landscape))
    assert _schedule(1, 1) not in _asked(landscape, 99)
    assert explorer.told == [(_schedule(1, 1), "refused"), (_schedule(2, 2), "measured"), (_schedule(4, 4), "refused")]


def test_when_the_descent_ends_the_explorer_has_the_rest() -> None:
    landscape = Landscape(lambda x, y: 1.0)
    ideas = [(x, 9) for x in range(10)]
    (found,) = search([_explored(Guesses(*ideas))], landscape, _trials(12, landscape))
    assert len(found.trials) == 12
    assert set(_asked(landscape, 12)) >= {_schedule(x, 9) for x in range(8)}


def test_time_is_shared_between_explorer_and_descent() -> None:
    landscape = Landscape(_bowl)
    ideas = [(x, y) for x in range(10) for y in (8, 9)]
    search([_explored(Guesses(*ideas))], landscape, Allowance(seconds=12.0, clock=landscape.clock))
    assert _asked(landscape, 6) == [_schedule(*idea) for idea in ideas[:6]]
    assert not set(_asked(landscape, 12)[6:]) & {_schedule(*idea) for idea in ideas}
