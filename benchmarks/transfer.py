"""Measures what a schedule from another shape is worth: without a trial, after 8 and 24 trials, against a long search.

    python -m benchmarks.transfer [--json FILE] [--kernels all] [--donors 2] [--donor-trials 12] [--long 48]
                                  [--deep 48] [--rounds 40]
    python -m benchmarks.transfer --networks all [--network-trials 48]

The families of kernels are a product, a convolution, its gradients, and the same for depthwise convolutions. In each
family one shape is the receiver. The nearest other shapes are donors, which are tuned first. The receiver then gets

- what `fit` would use without a trial: the nearest donor's schedule if it is near enough and gained enough, otherwise
  the rule's;
- the best of 8 and of 24 trials that begin with the donors' schedules;
- without a donor: what the rules propose, what our own search finds in `--long` trials, and what TVM's MetaSchedule
  finds in `--deep` trials. The faster of these two searches is the best that shares refer to.

At the end all of them are timed again in turns, equally often. For each of them the quickest of these times counts.
Everything runs on one thread. Every candidate, MetaSchedule's too, is built, verified and timed by the
process that `edgetrain tune` uses. MetaSchedule learns if xgboost is installed (`pip install 'edgetrain[deep]'`), and
otherwise draws at random.

`search ratio` is the time in which MetaSchedule reached its own best speed, divided by the time in which the
transferred search reached the same speed. The latter is at least the time to compile one kernel, which is what the
rule's own schedule takes.

With `--networks`, whole networks borrow from each other: see `benchmarks/transfer_networks.py`.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks.kernel_cases import Case, Convolution, convolution_cases, product_cases
from benchmarks.measure import show_table, write_json
from benchmarks.transfer_networks import NETWORKS, borrow_between
from benchmarks.transfer_search import Searched, Tuner, subject_of_case
from edgetrain.compiler.measure.kernel_library import KernelLibrary
from edgetrain.targets.profile import HOST, load_target
from edgetrain_tuner import rules
from edgetrain_tuner.measure.arguments import draw, parameters_of
from edgetrain_tuner.schedule import Schedule, ScheduleRefusedError
from edgetrain_tuner.transfer import CLASS, FARTHEST_UNTRIED, LEAST_SPEEDUP, shape_distance
from edgetrain_tuner.workload import workload_of

ALL = "all"
WAYS = ("rule", "untried", "8 trials", "24 trials", "long", "deep")
# Six of the families, one of each kind: all of them take longer than ten minutes.
USUAL = (
    "conv 3x3 forward",
    "conv 3x3 weight gradient",
    "conv 1x1 data gradient",
    "depthwise forward",
    "matmul nn",
    "matmul nt",
)


def _dense(channels: int, size: int, filters: int, taps: int, stride: int = 1) -> Convolution:
    return Convolution(batch=1, channels=channels, size=size, filters=filters, taps=taps, stride=stride)


def _depthwise(channels: int, size: int, taps: int) -> Convolution:
    return Convolution(batch=1, channels=channels, size=size, filters=channels, taps=taps, stride=1, groups=channels)


# Of each family the first shape receives, the others give.
CONVOLUTIONS: Mapping[str, tuple[Convolution, ...]] = {
    "conv 3x3": (_dense(128, 28, 128, 3), _dense(64, 56, 64, 3), _dense(256, 14, 256, 3), _dense(512, 7, 512, 3)),
    "conv 1x1": (_dense(144, 56, 24, 1), _dense(16, 112, 96, 1), _dense(40, 28, 240, 1), _dense(480, 14, 80, 1)),
    "conv stride 2": (_dense(128, 28, 256, 3, 2), _dense(64, 56, 128, 3, 2), _dense(256, 14, 512, 3, 2)),
    "depthwise": (_depthwise(144, 56, 3), _depthwise(32, 112, 3), _depthwise(576, 14, 3), _depthwise(960, 7, 3)),
}
PRODUCTS = ((384, 512, 128), (256, 256, 256), (250, 250, 250), (1024, 256, 64))


@dataclass(frozen=True, kw_only=True)
class Family:
    name: str
    receiver: Case
    donors: tuple[Case, ...]


def families(wanted: Sequence[str]) -> list[Family]:
    """Those whose names begin with one of these words; all of them for `all`."""
    found: dict[str, list[Case]] = {}
    for name, shapes in CONVOLUTIONS.items():
        for shape in shapes:
            for case in convolution_cases(name, shape):
                found.setdefault(case.family, []).append(case)
    for sizes in PRODUCTS:
        for case in product_cases(*sizes):
            found.setdefault(case.kernel, []).append(case)
    return [
        Family(name=name, receiver=cases[0], donors=tuple(cases[1:]))
        for name, cases in found.items()
        if ALL in wanted or any(name.startswith(word) for word in wanted)
    ]


@dataclass(frozen=True, kw_only=True)
class Lent:
    distance: float
    speedup: float
    schedule: Schedule


def lenders(family: Family, tuner: Tuner, options: argparse.Namespace) -> list[Lent]:
    """The nearest donors, tuned, the nearest first."""
    workload = workload_of(family.receiver.function())
    near = sorted(family.donors, key=lambda donor: shape_distance(workload, workload_of(donor.function())))
    found = []
    for donor in near[: options.donors]:
        function = donor.function()
        best, speedup = tuner.descend(subject_of_case(function, donor.operations), options.donor_trials).best()
        distance = shape_distance(workload, workload_of(function))
        found.append(Lent(distance=distance, speedup=speedup, schedule=best))
    return found


def measure(family: Family, tuner: Tuner, library: KernelLibrary, options: argparse.Namespace) -> dict[str, object]:
    """One row: seconds of each way, all timed in turns, and how long each took to find."""
    case, machine = family.receiver, tuner.machine
    function = case.function()
    subject = subject_of_case(function, case.operations)
    lent = lenders(family, tuner, options)
    refitted = [schedule for one in lent if (schedule := _refit(function, one.schedule, tuner)) is not None]
    good = [one for one in lent if one.distance <= FARTHEST_UNTRIED and one.speedup >= LEAST_SPEEDUP[CLASS]]
    transferred = tuner.descend(subject, 24, refitted)
    searches: dict[str, Searched] = {"long": tuner.descend(subject, options.long)}
    if options.deep:
        searches["deep"] = tuner.deep(subject, options.deep)
    schedules: dict[str, Schedule] = {"rule": transferred.default, "untried": transferred.default}
    if good:
        schedules["untried"] = _refit(function, good[0].schedule, tuner) or transferred.default
    schedules |= {"8 trials": transferred.best(8)[0], "24 trials": transferred.best(24)[0]}
    schedules |= {name: found.best()[0] for name, found in searches.items()}
    if options.deep and (fastest := searches["deep"].fastest()) is not None:
        schedules["deep"] = fastest[0]  # though the rule's may be faster: what MetaSchedule found is what is compared
    calls = {name: _call(library, rules.apply(function, s, machine), case) for name, s in schedules.items()}
    timings = quickest_in_turns(calls, rounds=options.rounds)
    row: dict[str, object] = {"family": family.name, "shape": case.shape, "donors": len(lent)}
    row |= {f"{name} s": timing for name, timing in timings.items()}
    row |= {f"{name} search s": found.search_s for name, found in searches.items()}
    row["24 trials search s"] = transferred.search_s
    if options.deep:
        row["search ratio"] = search_ratio(searches["deep"], transferred)
    reference = min(timings[name] for name in ("deep", "long") if name in timings)
    return row | {f"{name} of best": reference / timing for name, timing in timings.items()}


def search_ratio(deep: Searched, transferred: Searched) -> float | None:
    """How much longer the deep search took to its best speed than the transferred one to the same; None: never."""
    fastest = deep.fastest()
    if fastest is None:
        return None
    took_s = next(event.seconds for event in deep.events if event.schedule == fastest[0])
    own_s = transferred.seconds_to(fastest[1])
    return None if own_s is None else (took_s + deep.opened_s) / own_s


def _refit(function: Any, schedule: Schedule, tuner: Tuner) -> Schedule | None:
    try:
        return rules.refit(function, schedule, tuner.machine)
    except ScheduleRefusedError:
        return None


def quickest_in_turns(calls: Mapping[str, Callable[[], None]], *, rounds: int) -> dict[str, float]:
    """The quickest call of each, all in turns: as in the search itself, since what else a machine does only adds."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            samples[name].append(time.perf_counter() - began)
    return {name: min(times[1:]) for name, times in samples.items()}


def _call(library: KernelLibrary, function: Any, case: Case) -> Callable[[], None]:
    arrays = draw(parameters_of(case.function()), is_positive=False)
    return library.build(function, ()).bound(arrays)


def means(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, object]]:
    """The geometric mean of each way's share of the best search's speed, the least, and its search time."""
    for name in WAYS:
        shares = [row[f"{name} of best"] for row in rows if f"{name} of best" in row]
        if shares:
            seconds = [row[f"{name} search s"] for row in rows if f"{name} search s" in row]
            yield {
                "way": name,
                "kernels": len(shares),
                "mean of best": geometric_mean(shares),
                "least": min(shares),
                "search s a kernel": sum(seconds) / len(seconds) if seconds else 0.0,
            }


def ratios_told(rows: Sequence[Mapping[str, Any]]) -> str:
    """The search times' ratio over all kernels, and where the transferred search never got there."""
    asked = [row["search ratio"] for row in rows if "search ratio" in row]
    ratios = [ratio for ratio in asked if ratio is not None]
    if not ratios:
        return f"the transferred search reached MetaSchedule's speed on none of {len(asked)} kernels"
    return (
        f"the transferred search reached MetaSchedule's speed on {len(ratios)} of {len(asked)} kernels, in 1/"
        f"{geometric_mean(ratios):.1f} of its search time (geometric mean; the least 1/{min(ratios):.1f})"
    )


def _families_measured(tuner: Tuner, options: argparse.Namespace) -> list[dict[str, object]]:
    codegen = load_target(HOST).device.codegen
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        library = KernelLibrary(dataclasses.replace(codegen, cores=1), threads=1, folder=Path(folder))
        for family in families(options.kernels.split(",") if options.kernels else USUAL):
            rows.append(measure(family, tuner, library, options))
            shares = ", ".join(
                f"{way} {rows[-1][f'{way} of best']:.2f}" for way in WAYS if f"{way} of best" in rows[-1]
            )
            print(f"{family.name}: {shares}", file=sys.stderr)
        library.close()
    show_table(rows, ("family", "shape", *(f"{way} of best" for way in WAYS), "search ratio"))
    print()
    summary = list(means(rows))
    show_table(summary, ("way", "kernels", "mean of best", "least", "search s a kernel"))
    print(f"\n{ratios_told(rows)}")
    return [*rows, *summary]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--kernels", default="", help="comma-separated beginnings of families, or all (default: six)")
    parser.add_argument("--networks", default="", help=f"whole networks instead: all, or some of {', '.join(NETWORKS)}")
    parser.add_argument("--network-trials", type=int, default=48, help="trials of MetaSchedule, a network")
    parser.add_argument("--donors", type=int, default=2, help="the nearest shapes that are tuned first")
    parser.add_argument("--donor-trials", type=int, default=12)
    parser.add_argument("--long", type=int, default=48, help="trials of our own search without donors")
    parser.add_argument("--deep", type=int, default=48, help="trials of MetaSchedule, a kernel; 0 leaves it out")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args(arguments)
    began_s = time.monotonic()
    with Tuner() as tuner:
        if options.networks:
            rows = borrow_between(options.networks.split(","), tuner, trials=options.network_trials)
        else:
            rows = _families_measured(tuner, options)
        told = tuner.summary()
    print(
        f"{told['trials']} trials in {time.monotonic() - began_s:.0f} s, {told['invalid share']:.1%} invalid, the "
        f"longest compiled for {told['longest compile s']:.1f} s; MetaSchedule's cost model: {told['cost model']}"
    )
    if options.json:
        write_json(options.json, "transfer", [*rows, told])
    return 0


if __name__ == "__main__":
    sys.exit(main())
