"""Trials on a device: the same verdicts as on this machine, from a program that runs by itself."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgetrain._tvm import te
from edgetrain.compiler.lower import compile_kernels
from edgetrain.compiler.measure import device_bench
from edgetrain.compiler.measure.device_bench import DeviceBench, trial_text
from edgetrain.compiler.measure.runners import Runner, runner_of
from edgetrain.graph.extract import Kernel
from edgetrain.targets.device import Codegen
from edgetrain.targets.host import read_host
from edgetrain.toolchain.c_compiler import host_triple
from edgetrain_tuner import rules
from edgetrain_tuner.machine import Machine
from edgetrain_tuner.measure.bench import Subject
from edgetrain_tuner.measure.outcome import MeasuringLostError
from edgetrain_tuner.schedule import Schedule
from tests.edgetrain.processors import processor
from tests.edgetrain_tuner.machines import eager

pytestmark = pytest.mark.compile

ISA = read_host().isa
HERE = processor(host_triple().text, ISA.cpu, ISA.features)
ARM = processor("aarch64-linux-gnu", "cortex-a72", "+neon")
MACHINE = eager(Machine(vector_bits=128, vector_registers=16, cores=2))
BY_ENV = Runner(command=("env",))


def _here(folder: Path, runner: Runner = BY_ENV) -> DeviceBench:
    return DeviceBench(HERE, MACHINE, runner, threads=2, folder=folder)


def _emulated(folder: Path) -> DeviceBench:
    if shutil.which("qemu-aarch64-static") is None:
        pytest.skip("needs qemu-aarch64-static: apt-get install qemu-user-static")
    return DeviceBench(ARM, MACHINE, runner_of("emulator", ARM.triple), threads=2, folder=folder)


def _product() -> Any:
    a, b = te.placeholder((65, 70), name="a"), te.placeholder((70, 47), name="b")
    k = te.reduce_axis((0, 70), "k")
    return te.create_prim_func([a, b, te.compute((65, 47), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k))])


def _update() -> Any:
    w, g = te.placeholder((100,), name="w"), te.placeholder((100,), name="g")
    return te.create_prim_func([w, g, te.compute((100,), lambda i: w[i] - g[i])])


def _mixed() -> Any:
    """Half and double floats, whole numbers in and out, and roots of what is drawn."""
    half, wide, whole = (te.placeholder((50,), d, name=d) for d in ("float16", "float64", "int64"))
    roots = te.compute((50,), lambda i: te.sqrt(wide[i]) + half[i].astype("float64"), name="roots")
    sums = te.compute((50,), lambda i: whole[i] + whole[i], name="sums")
    halves = te.compute((50,), lambda i: half[i] * half[i], name="halves")
    return te.create_prim_func([half, wide, whole, roots, sums, halves])


def _others(function: Any) -> list[Schedule]:
    default, *_ = rules.propose(function, MACHINE)
    return [schedule for _, schedule in rules.neighbours(function, default, MACHINE)][:2]


@pytest.mark.parametrize(("place", "status"), [(_here, "measured"), (_emulated, "checked")])
def test_a_candidate_is_compared_and_timed_where_there_is_a_clock_to_believe(
    place: Callable[[Path], DeviceBench], status: str, tmp_path: Path
) -> None:
    bench, function = place(tmp_path), _product()
    assert "T.parallel" in rules.schedule(function, MACHINE).script()
    opened = bench.open(0, Subject(function=function, outputs=1))
    assert opened.against == "unscheduled"
    for schedule in _others(function):
        outcome = bench.trial(0, schedule, budget_s=0.01)
        assert (outcome.status, outcome.against, outcome.message) == (status, "unscheduled", "")
        assert outcome.largest_error <= 1e-5
        is_timed = status == "measured"
        assert (outcome.n > 0, outcome.seconds > 0, outcome.default_seconds > 0) == (is_timed,) * 3
    assert (opened.seconds > 0) == (status == "measured")


@pytest.mark.parametrize("place", [_here, _emulated])
@pytest.mark.parametrize(
    ("function", "outputs", "aliases"), [(_update, 1, ((0, 2),)), (_mixed, 3, ())], ids=["in place", "mixed types"]
)
def test_kernels_of_all_kinds_can_be_opened(
    place: Callable[[Path], DeviceBench],
    function: Callable[[], Any],
    outputs: int,
    aliases: tuple[tuple[int, int], ...],
    tmp_path: Path,
) -> None:
    place(tmp_path).open(0, Subject(function=function(), outputs=outputs, aliases=aliases))


def _misbuilt(monkeypatch: pytest.MonkeyPatch, wrong: Callable[[], Any], symbol: str = device_bench.CANDIDATE) -> None:
    """From now on the device gets another kernel in the candidate's place."""

    def compile_another(kernels: list[Kernel], target: Codegen, out: Path) -> None:
        (kernel,) = kernels
        if kernel.symbol == symbol:
            kernel = Kernel(symbol=symbol, function=wrong())
        compile_kernels([kernel], target, out)

    monkeypatch.setattr(device_bench, "compile_kernels", compile_another)


def _short_product() -> Any:
    a, b = te.placeholder((65, 70), name="a"), te.placeholder((70, 47), name="b")
    k = te.reduce_axis((0, 69), "k")
    return te.create_prim_func([a, b, te.compute((65, 47), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k))])


def _half_product() -> Any:
    """Leaves the last rows as they are."""
    a, b = te.placeholder((65, 70), name="a"), te.placeholder((70, 47), name="b")
    k = te.reduce_axis((0, 70), "k")
    return te.create_prim_func([a, b, te.compute((60, 47), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k))])


@pytest.mark.parametrize("place", [_here, _emulated])
@pytest.mark.parametrize("wrong", [_short_product, _half_product])
def test_a_candidate_that_computes_something_else_is_refused(
    place: Callable[[Path], DeviceBench],
    wrong: Callable[[], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, function = place(tmp_path), _product()
    bench.open(0, Subject(function=function, outputs=1))
    _misbuilt(monkeypatch, wrong)
    outcome = bench.trial(0, _others(function)[0], budget_s=0.01)
    assert outcome.status == "wrong"
    assert "of the largest element" in outcome.message


def test_a_default_that_computes_something_else_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = _here(tmp_path)
    _misbuilt(monkeypatch, _short_product)
    with pytest.raises(RuntimeError, match="the default schedule differs from the unscheduled kernel"):
        bench.open(0, Subject(function=_product(), outputs=1))


def _with_harness(bench: DeviceBench, folder: Path, text: str) -> None:
    """From now on programs do this first, after they began."""
    source = (folder / "trial.c").read_text()
    marker = "  alarm(trial.limit_s);\n"
    assert marker in source
    (folder / "trial.c").write_text(source.replace(marker, marker + text))
    bench._compile("-std=gnu11", "-O2", "-I.", "-c", "trial.c", "-o", "trial.o")


@pytest.mark.parametrize(
    ("text", "status"), [("  abort();\n", "crashed"), ("  for (;;) pause();\n", "timed out")], ids=["crash", "hang"]
)
def test_a_candidate_that_crashes_or_hangs_costs_a_trial(text: str, status: str, tmp_path: Path) -> None:
    bench, function = _here(tmp_path, Runner(command=("env",), run_s=1.0)), _product()
    bench.open(0, Subject(function=function, outputs=1))
    _with_harness(bench, tmp_path, text)
    outcome = bench.trial(0, _others(function)[0], budget_s=0.01)
    assert outcome.status == status
    assert "on the device" in outcome.message


def test_a_schedule_that_does_not_fit_reaches_no_device(tmp_path: Path) -> None:
    bench = _here(tmp_path)
    bench.open(0, Subject(function=_product(), outputs=1))
    bench._runner = Runner(command=("no-such-command",))
    assert bench.trial(0, Schedule("packed-product", {"rows": (10_000,)})).status == "refused"


def test_a_device_that_is_gone_is_no_fault_of_a_candidate(tmp_path: Path) -> None:
    bench, function = _here(tmp_path), _product()
    bench.open(0, Subject(function=function, outputs=1))
    bench._runner = Runner(command=("no-such-command",))
    with pytest.raises(MeasuringLostError, match="does not start") as caught:
        bench.trial(0, _others(function)[0])
    assert caught.value.told["exit_code"] == 6


def test_nothing_is_left_of_a_kernel_that_was_closed(tmp_path: Path) -> None:
    bench, function = _here(tmp_path), _product()
    bench.open(0, Subject(function=function, outputs=1))
    bench.trial(0, _others(function)[0], budget_s=0.01)
    bench.close(0)
    assert sorted(path.name for path in tmp_path.glob("*.o")) == ["threads.o", "trial.o"]


def test_what_is_updated_in_place_names_its_source() -> None:
    subject = Subject(function=_update(), outputs=1, aliases=((0, 2),))
    text = trial_text(
        subject, {"candidate": (64,), "reference": ()}, threads=2, limit_s=9.0, timing="TRIAL_ALONE", budget_s=0.1
    )
    tensors = "{100, 4, TRIAL_FLOAT32, 0, -1}, {100, 4, TRIAL_FLOAT32, 0, -1}, {100, 4, TRIAL_FLOAT32, 1, 0}"
    assert f"trial_tensors[] = {{{tensors}}};" in text
    assert "return candidate(t[0], t[1], t[2], s[0]);" in text
    assert "trial = {2, 9, TRIAL_ALONE, 0.1, " in text
