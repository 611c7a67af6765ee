"""Compares time and memory of one training step with PyTorch, JAX and ONNX Runtime, on the same ONNX graph.

    python -m benchmarks.step [--against torch|torch-compile|jax|ort|all] [--models resnet-18,mlp:32] [--threads 1,2]
                              [--json [FILE]] [--python-of ort=PYTHON]
    python -m benchmarks.step --profile [--models ...] [--threads 2]

All sides train every parameter in float32 with SGD and momentum (ONNX Runtime has none) on the same batch. Their first
losses must agree. They take turns, each in its own process; with several threads, each turn begins after a pause. A
speedup below 1 means that the peer is faster.

Memory is how much a new process grows over three steps, weights included. A peer first takes a step that does not
count, so that loading and compiling are not included. `gflops` counts the model's products, whichever algorithm
computes them. `share_of_peak` is relative to this machine's fused multiply-adds on as many threads. `half_*` belongs to
a second program of ours. Its plan recomputes until it stays within half of the memory of the peer that uses least, of
those that can train the model. It is empty if no plan is that small.

A peer in another environment is named by its interpreter; see `benchmarks/peers/README.md`.
`--profile` shows instead where the time of our own step goes, kernel by kernel.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks import step_profile
from benchmarks.machine_peak import machine_peak
from benchmarks.machine_peak import rows as peak_rows
from benchmarks.measure import Prepared, Timing, add_json_option, publish, run_in_child, stepper
from benchmarks.needs import missing_peers, missing_weights, require
from benchmarks.peers.process import PeerProcess
from benchmarks.peers.protocol import LABELS, CannotError, Job, Step, Turn, take_turn
from benchmarks.peers.step_graph import read_step_graph, step_flops
from benchmarks.references.trained import Batch
from benchmarks.step_models import RATE, SUBJECTS, Subject, chosen, fill, made_batch
from edgetrain.errors import ModelError, PlanInfeasibleError
from edgetrain.graph.ir import LOSS
from edgetrain.planner.plan import Plan
from edgetrain.run.engines.engine import scalar
from edgetrain.run.engines.local import LocalEngine
from edgetrain.run.sensors.process_memory import grown_bytes, reset_peak, resident

PEERS = ("torch", "torch-compile", "jax", "ort")
LARGEST_LOSS_DIFFERENCE = 1e-3  # relative, of the first step
OURS, HALF = "ours", "ours, in half of the memory"
NOTES = {"ort": "SGD without momentum, which it does not have"}
_WARM_UP = 2
_TURN_S = 0.05  # a turn of small steps is this long at least
_REST_S = 0.1  # before a turn on several threads: those of ONNX Runtime look for work this long, and keep a core busy
_MEMORY_STEPS = 3
_COLUMNS = ("model", "batch", "threads", "peer", "seconds", "peer_seconds", "speedup", "peak_bytes")
COLUMNS = (
    *(*_COLUMNS, "peer_peak_bytes", "half_speedup", "half_peak_bytes", "gflops", "share_of_peak", "spread"),
    *("peer_spread", "note"),
)

# Every row has every field.
_COMPLETE: dict[str, object] = dict.fromkeys((*COLUMNS, "half_seconds", "peer_version", "n"))

Row = dict[str, object]
TakeTurn = Callable[[int], Turn]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A subject compiled, its batch made, and both written down for the peers."""

    subject: Subject
    prepared: Prepared
    inputs: tuple[str, ...]
    batch: Batch
    folder: Path

    @classmethod
    def of(cls, subject: Subject, folder: Path) -> Trial:
        prepared = subject.prepare()
        inputs = tuple(str(i["name"]) for i in prepared.compiled.facts["inputs"])
        batch = made_batch(prepared.compiled.graph, inputs)
        trial = cls(subject=subject, prepared=prepared, inputs=inputs, batch=batch, folder=folder)
        arrays = {inputs[0]: batch.data, **batch.more}
        model = _with_shapes(onnx.load(str(prepared.compiled.model)), arrays)
        onnx.save(model, trial.model)
        _save(trial.parameters, {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer})
        _save(trial.data, {**arrays, LABELS: batch.labels})
        return trial

    @property
    def model(self) -> Path:
        return self.folder / "model.onnx"

    @property
    def parameters(self) -> Path:
        return self.folder / "parameters.npz"

    @property
    def data(self) -> Path:
        return self.folder / "batch.npz"

    def job(self, peer: str, threads: int) -> Job:
        return Job(
            peer=peer,
            model=str(self.model),
            parameters=str(self.parameters),
            data=str(self.data),
            threads=threads,
            learning_rate=RATE,
            momentum=self.subject.options.optimizer.momentum,
        )

    def engine(self, threads: int, budget_bytes: int | None = None) -> LocalEngine:
        """Filled with the batch; to be closed. Raises `PlanInfeasibleError` where the budget is too small."""
        return self.engine_of(self.prepared.plan(budget_bytes), threads)

    def engine_of(self, plan: Plan, threads: int) -> LocalEngine:
        engine = LocalEngine(self.prepared.program(plan), threads=threads, page_directory=self.folder)
        fill(engine, self.batch, self.inputs[0])
        return engine


def _save(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    with path.open("wb") as file:
        np.savez(file, **dict[str, Any](arrays))


def _with_shapes(model: onnx.ModelProto, arrays: Mapping[str, np.ndarray[Any, Any]]) -> onnx.ModelProto:
    """The model with the batch's shapes in place of its open dimensions: peers that compile want to know them."""
    for value in model.graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, arrays[value.name].shape, strict=True):
            dim.dim_value = size
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.type.tensor_type.shape.dim[0].dim_value = next(iter(arrays.values())).shape[0]
    return model


def measure(trial: Trial, threads: int, peers: Sequence[str], rounds: int, pythons: Mapping[str, str]) -> list[Row]:
    """A row for each peer: ours and all peers in turns. Raises `SystemExit` where a first loss is not ours."""
    cannot: dict[str, str] = {}
    versions: dict[str, str] = {}
    grown: dict[str, int] = {}
    peak_bytes = _grown_by_us(trial, threads)
    with ExitStack() as stack:
        engine = stack.enter_context(trial.engine(threads))
        sides: dict[str, TakeTurn] = {OURS: partial(take_turn, _our_step(engine))}
        first_losses = {OURS: sides[OURS](1).loss}
        for peer in peers:
            try:
                grown[peer] = _grown_by_peer(trial.job(peer, threads), pythons)
                process = stack.enter_context(PeerProcess(trial.job(peer, threads), pythons))
                first_losses[peer] = process.turn(1).loss
            except CannotError as error:
                cannot[peer] = str(error)
            else:
                sides[peer], versions[peer] = process.turn, process.version
        budget_bytes = _half(trial, peak_bytes, [grown[peer] for peer in versions])
        if budget_bytes is not None:
            frugal = stack.enter_context(trial.engine(threads, budget_bytes))
            sides[HALF] = partial(take_turn, _our_step(frugal))
            first_losses[HALF] = sides[HALF](1).loss
        _check_losses(trial, first_losses)
        timings = _in_turns(sides, rounds, _REST_S if threads > 1 else 0.0)
    ours = _ours(trial, threads, timings[OURS]) | {"peak_bytes": peak_bytes}
    if budget_bytes is not None:
        half_bytes = _grown_by_us(trial, threads, budget_bytes)
        ours |= {"half_seconds": timings[HALF].seconds, "half_peak_bytes": half_bytes}
    rows = []
    for peer in peers:
        if peer in cannot:
            rows.append(ours | {"peer": peer, "note": cannot[peer]})
            continue
        row = ours | _theirs(peer, versions[peer], timings[peer], timings[OURS], grown[peer])
        half = {"half_speedup": timings[peer].seconds / timings[HALF].seconds} if HALF in timings else {}
        rows.append(row | half)
    return rows


def _half(trial: Trial, peak_bytes: int | None, peers_bytes: Sequence[int]) -> int | None:
    """The budget that keeps our process within half of the memory of the peer that uses least; None if no plan does."""
    if peak_bytes is None or not peers_bytes:
        return None
    plan = trial.prepared.plan()
    besides = max(0, peak_bytes - plan.peak_bytes)  # what a process has besides its arena: code, stacks
    budget_bytes = min(peers_bytes) // 2 - besides
    try:
        trial.prepared.plan(max(1, budget_bytes))
    except PlanInfeasibleError:
        return None
    return budget_bytes


def _in_turns(sides: Mapping[str, TakeTurn], rounds: int, rest_s: float) -> dict[str, Timing]:
    count = max(1, math.ceil(_TURN_S / sides[OURS](1).seconds))
    samples: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(_WARM_UP + rounds):
        for name, turn in sides.items():
            time.sleep(rest_s)
            seconds = turn(count).seconds
            if number >= _WARM_UP:
                samples[name].append(seconds)
    return {name: Timing.of(seconds) for name, seconds in samples.items()}


def _our_step(engine: LocalEngine) -> Step:
    take = stepper(engine)

    def step() -> float:
        take()
        return scalar(engine.tensor(LOSS))

    return step


def _check_losses(trial: Trial, first_losses: Mapping[str, float]) -> None:
    ours = first_losses[OURS]
    for peer, loss in first_losses.items():
        if not abs(loss - ours) <= LARGEST_LOSS_DIFFERENCE * abs(ours):
            raise SystemExit(f"{trial.subject.name}: the first loss is {ours:.6g}, that of {peer} {loss:.6g}")


def _ours(trial: Trial, threads: int, timing: Timing) -> Row:
    flops_per_s = step_flops(read_step_graph(trial.model)) / timing.seconds
    return {
        "model": trial.subject.model,
        "batch": trial.subject.batch,
        "threads": threads,
        "seconds": timing.seconds,
        "gflops": flops_per_s / 1e9,
        "share_of_peak": flops_per_s / machine_peak(threads),
        "spread": timing.spread,
        "n": timing.n,
    }


def _theirs(peer: str, version: str, timing: Timing, ours: Timing, grown: int) -> Row:
    return {
        "peer": peer,
        "peer_version": version,
        "peer_seconds": timing.seconds,
        "speedup": timing.seconds / ours.seconds,
        "peer_peak_bytes": grown,
        "peer_spread": timing.spread,
        "note": NOTES.get(peer, ""),
    }


def _grown_by_us(trial: Trial, threads: int, budget_bytes: int | None = None) -> int | None:
    asked = {"name": trial.subject.name, "threads": threads, "budget_bytes": budget_bytes}
    grown: int | None = run_in_child("benchmarks.step", asked)["bytes"]
    return grown


def _grown_by_peer(job: Job, pythons: Mapping[str, str]) -> int:
    with PeerProcess(job, pythons) as fresh:
        return fresh.grown_bytes()


def grow(name: str, threads: int, budget_bytes: int | None = None) -> dict[str, Any]:
    """How much this process grows over three of our steps; meant for a fresh one."""
    (subject,) = chosen([name])
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial.of(subject, Path(folder))
        before = resident()
        can_reset = reset_peak()
        with trial.engine(threads, budget_bytes) as engine:
            step = _our_step(engine)
            for _ in range(_MEMORY_STEPS):
                step()
            grown = grown_bytes(before) if can_reset else None
    return {"bytes": grown}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.child:
        print(json.dumps(grow(**json.loads(options.child))))
        return 0
    threads = [int(count) for count in options.threads.split(",")]
    subjects = chosen(options.models.split(","))
    if options.profile:
        require(missing_weights(subjects))
        rows = [r for s in subjects for t in threads for r in step_profile.profiled(s, t, rounds=options.rounds)]
        publish("step_profile", rows, step_profile.COLUMNS, options.json)
        return 0
    peers = peers_of(options.against)
    pythons = interpreters(options.python_of)
    require([*missing_weights(subjects), *missing_peers(peers, pythons)])
    _compile_all(subjects)
    rows = [_COMPLETE | row for row in peak_rows(threads)]
    for subject in subjects:
        with tempfile.TemporaryDirectory() as folder:
            trial = Trial.of(subject, Path(folder))
            for count in threads:
                rows += [_COMPLETE | r for r in measure(trial, count, peers, options.rounds, pythons)]
                print(f"{subject.name} on {count} threads measured", file=sys.stderr)
    publish("step", rows, COLUMNS, options.json)
    return 0


def _compile_all(subjects: Sequence[Subject]) -> None:
    """Compiles every model. Raises `SystemExit` for one that cannot be compiled: before anything is timed."""
    for subject in subjects:
        try:
            subject.prepare()
        except ModelError as error:
            raise SystemExit(f"{subject.name}: {error}") from error


def peers_of(words: str) -> tuple[str, ...]:
    """Peers by their names between commas, or `all`. Raises `SystemExit` for a name that is none."""
    peers = PEERS if words == "all" else tuple(words.split(","))
    if unknown := [peer for peer in peers if peer not in PEERS]:
        raise SystemExit(f"there is no peer {', '.join(unknown)}; there are {', '.join(PEERS)}")
    return peers


def interpreters(pairs: Sequence[str]) -> dict[str, str]:
    """`PEER=PYTHON` by peer. Raises `SystemExit` for a peer or a file that is not there: before anything is timed."""
    found = {}
    for pair in pairs:
        peer, _, python = pair.partition("=")
        if peer not in PEERS or not Path(python).is_file():
            raise SystemExit(f"--python-of {pair}: expected PEER=PYTHON, one of {', '.join(PEERS)} and its interpreter")
        found[peer] = str(Path(python).absolute())
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", default="torch", help="comma-separated, or `all` (default: %(default)s)")
    models = ",".join(dict.fromkeys(subject.model for subject in SUBJECTS))
    parser.add_argument("--models", default=models, help="comma-separated MODEL or MODEL:BATCH (default: %(default)s)")
    parser.add_argument("--threads", default="1,2", help="comma-separated (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=10)
    add_json_option(parser)
    parser.add_argument("--python-of", action="append", default=[], metavar="PEER=PYTHON")
    parser.add_argument("--profile", action="store_true", help="our step, kernel by kernel")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
