"""What a schedule that was found for another shape is worth: with no trial, with 8, with 24, against a deep search.

    python -m benchmarks.transfer [--json FILE] [--kernels conv,...] [--donor-trials 24] [--long 96] [--deep 64]
                                  [--rounds 40]

For each family of kernels (a product, a convolution, its gradients, the same over single channels) one shape is the
receiver and all others are donors, which are tuned first. Then the receiver gets what `fit` would take untried (the
nearest donor's schedule if that is near enough and brought enough, else the rule's), the best of 8 and of 24 trials
that begin with the donors, and, with no donor, what the rules propose, what our own search finds in `--long` trials
and TVM's MetaSchedule in `--deep`. The faster of these two is what shares are of. All of them are timed again at the
end, in turns, as often as each other: only those times count, the quickest of each. One thread on every side.
MetaSchedule measures with TVM's own runtime, and is called through it. It needs `pip install cloudpickle xgboost`;
without the latter it searches at random.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np

from benchmarks.kernel_cases import Case, Convolution, convolution_cases, product_cases
from benchmarks.measure import show_table, write_json
from edgetrain._tvm import runtime, tvm
from edgetrain.program.kernel_library import KernelLibrary
from edgetrain.program.lower import CodegenTarget
from edgetrain.targets import HOST, load_target
from edgetrain_tuner import rules
from edgetrain_tuner.features import Features
from edgetrain_tuner.measure.arguments import draw, parameters_of
from edgetrain_tuner.measure.bench import Bench, Subject
from edgetrain_tuner.measure.outcome import MEASURED, Outcome
from edgetrain_tuner.schedule import Schedule
from edgetrain_tuner.search import Allowance, Tunable, search
from edgetrain_tuner.transfer import CLASS, FARTHEST_UNTRIED, LEAST_SPEEDUP, shape_distance
from edgetrain_tuner.workload import workload_of

WAYS = ("rule", "untried", "8 trials", "24 trials", "long", "deep")


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
        if any(name.startswith(word) for word in wanted)
    ]


@dataclass(kw_only=True)
class Counting:
    """Measures on a bench, and counts what became of the trials."""

    bench: Bench
    outcomes: list[Outcome] = field(default_factory=list)
    longest_s: float = 0.0

    def measure(self, number: int, schedule: Schedule, *, budget_s: float) -> Outcome:
        began = time.perf_counter()
        outcome = self.bench.trial(number, schedule, budget_s=budget_s)
        self.longest_s = max(self.longest_s, time.perf_counter() - began)
        self.outcomes.append(outcome)
        return outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The best schedule, what it brought over the rule's, and the seconds that it took to find it."""

    schedule: Schedule
    speedup: float
    search_s: float


class Tuner:
    """Searches on this machine with one thread."""

    def __init__(self, library: KernelLibrary, features: Features) -> None:
        self.library = library
        self.features = features
        self.counting = Counting(bench=Bench(library.build, features))

    def tuned(self, case: Case, trials: int, starts: Sequence[Schedule]) -> Found:
        function = case.function()
        began = time.perf_counter()
        default, *others = rules.propose(function, self.features)
        self.counting.bench.open(0, Subject(function=function, outputs=1, operations=case.operations))
        tunable = Tunable(
            number=0,
            weight=1.0,
            default=default,
            starts=tuple(dict.fromkeys(s for s in (*starts, *others) if s != default)),
            neighbours=lambda schedule: rules.neighbours(function, schedule, self.features),
        )
        (found,) = search([tunable], self.counting, Allowance(trials=trials, clock=time.perf_counter))
        self.counting.bench.close(0)
        took_s = time.perf_counter() - began
        if found.best is None:
            return Found(schedule=default, speedup=1.0, search_s=took_s)
        return Found(schedule=found.best.schedule, speedup=found.best.outcome.speedup, search_s=took_s)


def deep(case: Case, trials: int, target: Any) -> tuple[Any | None, float]:
    """The best of MetaSchedule, as TVM runs it; None where it found nothing."""
    sys.modules.setdefault("tvm.s_tir.tensor_intrin", type(sys)("tvm.s_tir.tensor_intrin"))  # takes 38 s to import
    from tvm.s_tir import meta_schedule as ms

    module = tvm.IRModule({"main": case.function().with_attr("global_symbol", "main")})
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        config = ms.runner.EvaluatorConfig(number=2, repeat=2, min_repeat_ms=30)
        database = ms.tune_tir(
            module,
            target,
            folder,
            max_trials_global=trials,
            num_trials_per_iter=min(16, trials),
            builder=ms.builder.LocalBuilder(max_workers=1, f_build=_build, timeout_sec=60),
            runner=ms.runner.LocalRunner(timeout_sec=20, evaluator_config=config),
            cost_model=_cost_model(),
            # Rules for float32: those for this target would ask for the intrinsics that were left out above.
            space=ms.space_generator.PostOrderApply(sch_rules="llvm", postprocs="llvm", mutator_probs="llvm"),
            seed=1,
            num_tuning_cores=1,
        )
        schedule = ms.tir_integration.compile_tir(database, module, target)
    took_s = time.perf_counter() - began
    return (None if schedule is None else tvm.compile(schedule.mod, target=target)), took_s


def _build(module: Any, target: Any, _parameters: Any) -> Any:
    """MetaSchedule's own builder without the import that takes longer than its time limit."""
    from tvm.driver import build
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    return build(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target=target)


def _cost_model() -> str:
    return "xgb" if importlib.util.find_spec("xgboost") else "random"


def measure(family: Family, tuner: Tuner, options: argparse.Namespace, target: Any) -> dict[str, object]:
    """One row: seconds of each way, all timed in turns, and how long each took to find."""
    case, features = family.receiver, tuner.features
    function = case.function()
    workload = workload_of(function)
    lent = [
        (shape_distance(workload, workload_of(donor.function())), tuner.tuned(donor, options.donor_trials, ()))
        for donor in family.donors
    ]
    lent.sort(key=lambda pair: pair[0])
    good = [found for distance, found in lent if distance <= FARTHEST_UNTRIED and found.speedup >= LEAST_SPEEDUP[CLASS]]
    starts = [rules.refit(function, found.schedule, features) for _, found in lent]
    schedules: dict[str, Schedule] = {"rule": rules.propose(function, features)[0]}
    schedules["untried"] = rules.refit(function, good[0].schedule, features) if good else schedules["rule"]
    search_s = {"rule": 0.0, "untried": 0.0}
    for name, trials, begin in (("8 trials", 8, starts), ("24 trials", 24, starts), ("long", options.long, ())):
        found = tuner.tuned(case, trials, begin)
        schedules[name], search_s[name] = found.schedule, found.search_s
    calls = {name: _call(tuner.library, rules.apply(function, s, features), case) for name, s in schedules.items()}
    if options.deep:
        compiled, search_s["deep"] = deep(case, options.deep, target)
        if compiled is not None:
            calls["deep"] = _tvm_call(compiled, case)
    timings = quickest_in_turns(calls, rounds=options.rounds)
    row: dict[str, object] = {"family": family.name, "shape": case.shape, "donors": len(family.donors)}
    for name, timing in timings.items():
        row |= {f"{name} s": timing, f"{name} search s": search_s[name]}
    reference = min(timings[name] for name in ("deep", "long") if name in timings)
    return row | {f"{name} of best": reference / timing for name, timing in timings.items()}


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
    return library.build(function, False).bound(arrays)


def _tvm_call(compiled: Any, case: Case) -> Callable[[], None]:
    arrays = draw(parameters_of(case.function()), is_positive=False)
    tensors = [runtime.tensor(np.ascontiguousarray(array)) for array in arrays]
    function = compiled["main"]
    return lambda: function(*tensors)


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
                "search s a kernel": sum(seconds) / len(seconds),
            }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--kernels", default="", help="comma-separated beginnings of families (default: all)")
    parser.add_argument("--donor-trials", type=int, default=24)
    parser.add_argument("--long", type=int, default=96, help="trials of our own search without donors")
    parser.add_argument("--deep", type=int, default=64, help="trials of MetaSchedule; 0 leaves it out")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args(arguments)
    codegen = load_target(HOST).codegen
    features = Features(vector_bits=codegen.vector_bits, vector_registers=codegen.vector_registers, cores=1)
    target = CodegenTarget(triple=codegen.triple, cpu=codegen.cpu, cores=1)
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        library = KernelLibrary(target, threads=1, folder=Path(folder))
        tuner = Tuner(library, features)
        for family in families(options.kernels.split(",")):
            rows.append(measure(family, tuner, options, target.to_tvm()))
            shares = ", ".join(
                f"{way} {rows[-1][f'{way} of best']:.2f}" for way in WAYS if f"{way} of best" in rows[-1]
            )
            print(f"{family.name}: {shares}", file=sys.stderr)
        library.close()
    show_table(rows, ("family", "shape", *(f"{way} of best" for way in WAYS)))
    print()
    summary = list(means(rows))
    show_table(summary, ("way", "kernels", "mean of best", "least", "search s a kernel"))
    outcomes = tuner.counting.outcomes
    invalid = sum(outcome.status != MEASURED for outcome in outcomes)
    print(f"\n{len(outcomes)} trials, {invalid} invalid, the longest {tuner.counting.longest_s:.1f} s")
    if options.json:
        write_json(options.json, "transfer", [*rows, *summary, {"trials": len(outcomes), "invalid": invalid}])
    return 0


if __name__ == "__main__":
    sys.exit(main())
