"""Does a compiled model train right? Three questions to the program itself, on made-up data.

The program is compiled with plain SGD, so that one step at a known learning rate gives the gradient away:
`gradient = (parameter before − parameter after) / rate`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from edgetrain.graph.ir import Role, Tensor, TrainGraph
from edgetrain.program.artifact import Artifact
from edgetrain.run.engine import LABELS, LEARNING_RATE, LOSS, STEP, Array, Engine, evaluated, scalar
from edgetrain.run.local import LocalEngine

FORMAT = "edgetrain.check/1"

_STEPS = 3
_RATE = 0.01
_PROBE_RATE = 1024.0  # a power of two: exact, and large, so that rounding the parameter hides little of the gradient
_SAMPLE = 64  # elements of each tensor that are moved
_RANDOM = 3  # directions besides the gradient's own: a fault of a fifth of the gradient rarely hides from all three
_MOST_TENSORS = 16  # spread evenly over the model; one alone costs 8 to 40 steps
_TOGETHER = 4  # tensors that are moved at once: as many steps as for one, where nothing is wrong
_STEP_SIZES = (3e-2, 1e-2, 1e-1, 3e-3, 1e-3)  # against the sample's norm; the likeliest first
_LEAST_NORM = 0.1  # a sample of zeros (biases) is moved as if it had this norm
_TOLERANCE = 0.02
_CLEAR = 0.5  # so much of what is allowed ends the search for a better step size
# Two float32 losses differ by a few roundings even where the true ones do not.
_LOSS_ROUNDINGS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The answer to one question, in a line."""

    name: str
    is_ok: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    model: str
    findings: tuple[Finding, ...]

    @property
    def is_ok(self) -> bool:
        return all(finding.is_ok for finding in self.findings)

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, "is_ok": self.is_ok, **asdict(self)}, indent=1) + "\n"

    def to_text(self) -> str:
        width = max(len(finding.name) for finding in self.findings)
        lines = [f"{f.name:<{width}}  {'ok    ' if f.is_ok else 'FAILED'}  {f.text}" for f in self.findings]
        verdict = "trains here" if self.is_ok else "DOES NOT train right here"
        return "\n".join((*lines, "", f"{self.model} {verdict}")) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientError:
    """How far a tensor's gradient is from the finite difference. `excess` above 1 is more than is allowed."""

    tensor: str
    excess: float
    relative: float


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A program to question: `trained` are its trained parameters, `seed` decides the data and the samples."""

    program: Artifact
    loss: str
    trained: tuple[str, ...]
    threads: int
    page_directory: Path
    seed: int = 0

    def engine(self, program: Artifact | None = None) -> LocalEngine:
        return LocalEngine(program or self.program, threads=self.threads, page_directory=self.page_directory)


def _no_progress(_done: int, _total: int) -> None:
    """Tells nobody."""


def check_steps(probe: Probe) -> tuple[Finding, bytes]:
    """Takes a few steps on one batch; the finding, and the parameters as they are then."""
    with probe.engine() as engine:
        losses = take_steps(engine, probe)
        saved = bytes(engine.saved)
    shown = ", ".join(f"{loss:.6g}" for loss in losses)
    finite = all(map(math.isfinite, losses))
    trend = "falling" if losses[-1] < losses[0] else "finite, not falling"
    return Finding(name="steps", is_ok=finite, text=f"losses {shown} ({trend if finite else 'no number'})"), saved


def check_gradients(probe: Probe, progress: Callable[[int, int], None] = _no_progress) -> Finding:
    """Compares gradients with central differences of the loss, along the gradient itself and along random vectors."""
    chosen = spread(probe.trained, _MOST_TENSORS)
    with probe.engine() as engine:
        errors: list[GradientError] = []
        for error in gradient_errors(engine, probe, chosen):
            errors.append(error)
            progress(len(errors), len(chosen))
    worst = max(errors, key=lambda error: error.excess)
    failed = [error.tensor for error in errors if not error.excess <= 1]
    text = f"{len(chosen)} of {len(probe.trained)} tensors against finite differences, worst `{worst.tensor}`"
    text += f" off by {worst.relative:.2%}" if math.isfinite(worst.relative) else " not finite"
    if failed:
        text += f"; wrong: {', '.join(f'`{name}`' for name in failed)}"
    return Finding(name="gradients", is_ok=not failed, text=text)


def check_plan(probe: Probe, planned: Artifact, expected: bytes, description: str) -> Finding:
    """Whether the planned program takes the same steps to the same bits (`expected`: from `check_steps`)."""
    with probe.engine(planned) as engine:
        take_steps(engine, probe)
        saved = np.frombuffer(bytes(engine.saved), np.uint8)
        differing = _differing_tensors(planned, saved, np.frombuffer(expected, np.uint8))
    if differing:
        text = f"{description}: other bits than unplanned in {', '.join(f'`{name}`' for name in differing)}"
        return Finding(name="plan", is_ok=False, text=text)
    return Finding(name="plan", is_ok=True, text=f"{description}: the same bits as unplanned after {_STEPS} steps")


def take_steps(engine: Engine, probe: Probe) -> tuple[float, ...]:
    """The losses of a few steps on one made-up batch."""
    fill_synthetic(engine, probe.program.graph, loss=probe.loss, seed=probe.seed)
    engine.tensor(LEARNING_RATE)[...] = _RATE
    return tuple(_loss_of_step(engine) for _ in range(_STEPS))


def fill_synthetic(engine: Engine, graph: TrainGraph, *, loss: str, seed: int) -> None:
    """Normals for floating inputs, 0 and 1 for whole numbers, and labels as the loss reads them."""
    rng = np.random.Generator(np.random.PCG64(seed))
    for tensor in graph.by_role(Role.INPUT):
        if not tensor.name.startswith("train."):
            engine.tensor(tensor.name)[...] = _made_up(rng, tensor)
    labels = engine.tensor(LABELS)
    labels[...] = _LABELS[loss](rng, graph)


def _made_up(rng: np.random.Generator, tensor: Tensor) -> Array:
    if np.dtype(tensor.dtype).kind == "f":
        return rng.standard_normal(tensor.shape).astype(tensor.dtype)
    return rng.integers(0, 2, tensor.shape).astype(tensor.dtype)


def _classes(rng: np.random.Generator, graph: TrainGraph) -> Array:
    prefix = evaluated("")
    output = next(t for t in graph.by_role(Role.OUTPUT) if t.name.startswith(prefix))
    return rng.integers(0, output.shape[1], graph.tensors[LABELS].shape)


def _normals(rng: np.random.Generator, graph: TrainGraph) -> Array:
    return rng.standard_normal(graph.tensors[LABELS].shape)


def _bits(rng: np.random.Generator, graph: TrainGraph) -> Array:
    return rng.integers(0, 2, graph.tensors[LABELS].shape)


def _shares(rng: np.random.Generator, graph: TrainGraph) -> Array:
    scores = np.exp(_normals(rng, graph))
    return np.asarray(scores / scores.sum(axis=1, keepdims=True))


def _pairs(_rng: np.random.Generator, graph: TrainGraph) -> Array:
    """Each label twice, so that every row has a partner."""
    return np.arange(graph.tensors[LABELS].shape[0]) // 2


def _of_its_type(rng: np.random.Generator, graph: TrainGraph) -> Array:
    return _made_up(rng, graph.tensors[LABELS])


_LABELS: Mapping[str, Callable[[np.random.Generator, TrainGraph], Array]] = {
    "cross-entropy": _classes,
    "bce": _bits,
    "mse": _normals,
    "l1": _normals,
    "focal": _classes,
    "kl": _shares,
    "distillation": _normals,
    "cosine": _normals,
    "nt-xent": _pairs,
    "onnx": _of_its_type,
}


def spread(names: Sequence[str], count: int) -> tuple[str, ...]:
    """At most `count` of the names, the first and the last among them."""
    if len(names) <= count:
        return tuple(names)
    return tuple(names[round(i * (len(names) - 1) / (count - 1))] for i in range(count))


@dataclass(frozen=True, kw_only=True)
class _Sample:
    """Some elements of one tensor: where they are, their gradient, and the unit vectors they are moved along."""

    tensor: str
    rows: Array
    base: Array  # the elements' values
    gradient: Array
    directions: tuple[Array, ...]

    @property
    def size(self) -> float:
        """What step sizes are a share of."""
        return max(_LEAST_NORM, float(np.linalg.norm(self.base)))

    @property
    def reach(self) -> float:
        """How much the loss changes, to first order, when the elements move by their size along the gradient."""
        return self.size * float(np.linalg.norm(self.gradient))


def gradient_errors(engine: Engine, probe: Probe, names: Sequence[str]) -> Iterator[GradientError]:
    """Each tensor's worst direction, at the step size where the two agree best. The engine is left as it was.

    Tensors are moved a few at a time, each by what changes the loss as much as the others do, and held to what is
    allowed to one of them alone. Only where that fails is each asked by itself, and may be blamed.
    """
    fill_synthetic(engine, probe.program.graph, loss=probe.loss, seed=probe.seed)
    saved = bytes(engine.saved)
    gradients = _gradients(engine, names, saved)
    rng = np.random.Generator(np.random.PCG64([probe.seed, 1]))
    samples = sorted((_sample(rng, engine, name, gradients[name]) for name in names), key=lambda s: s.reach)
    engine.tensor(LEARNING_RATE)[...] = 0.0
    for first in range(0, len(samples), _TOGETHER):
        group = samples[first : first + _TOGETHER]
        together = _compare_together(engine, saved, group) if len(group) > 1 else None
        for sample in group:
            if together is not None:
                yield GradientError(tensor=sample.tensor, excess=together.excess, relative=together.relative)
                continue
            found = [_compare(engine, saved, sample, direction) for direction in sample.directions]
            yield max(found, key=lambda error: error.excess)


def _sample(rng: np.random.Generator, engine: Engine, name: str, gradient: Array) -> _Sample:
    rows = rng.choice(gradient.size, min(_SAMPLE, gradient.size), replace=False)
    chosen = gradient.reshape(-1)[rows]
    # Along itself a gradient shows its length; what it lacks altogether shows only along others.
    directions = [vector / np.linalg.norm(vector) for vector in rng.standard_normal((_RANDOM, rows.size))]
    if np.linalg.norm(chosen) > 0:
        directions.append(chosen / np.linalg.norm(chosen))
    return _Sample(
        tensor=name,
        rows=rows,
        base=engine.tensor(name).reshape(-1)[rows].astype(np.float64),
        gradient=chosen,
        directions=tuple(directions),
    )


def _compare_together(engine: Engine, saved: bytes, group: Sequence[_Sample]) -> GradientError | None:
    """The worst direction of samples that move at once; None where it shows nothing, or something is wrong."""
    if not all(math.isfinite(sample.reach) and sample.reach > 0 for sample in group):
        return None
    least = min(sample.reach for sample in group)
    found = []
    for vectors in zip(*(sample.directions for sample in group), strict=True):
        best = GradientError(tensor="", excess=math.inf, relative=math.inf)
        for size in _STEP_SIZES[:2]:
            share = size * least  # of the loss's change, each tensor's
            steps = [share / sample.reach * sample.size for sample in group]
            moves = [step * vector for step, vector in zip(steps, vectors, strict=True)]
            expected = sum(float(sample.gradient @ move) for sample, move in zip(group, moves, strict=True))
            difference, rounding = _moved(engine, saved, group, moves, expected)
            if rounding > _TOLERANCE * share:
                continue  # all of what is allowed would be rounding
            excess = difference / (_TOLERANCE * share + rounding)
            if excess < best.excess:
                best = GradientError(tensor="", excess=excess, relative=difference / share)
            if best.excess < _CLEAR:
                break
        if not best.excess <= _CLEAR:
            return None
        found.append(best)
    return max(found, key=lambda error: error.excess)


def _moved(
    engine: Engine, saved: bytes, samples: Sequence[_Sample], moves: Sequence[Array], expected: float
) -> tuple[float, float]:
    """How far half the change of the loss between both ends of `moves` is from `expected`, and what rounding makes."""
    losses = []
    for sign in (1.0, -1.0):
        for sample, move in zip(samples, moves, strict=True):
            engine.tensor(sample.tensor).reshape(-1)[sample.rows] = sample.base + sign * move
        losses.append(_loss_of_step(engine))
        engine.saved[:] = saved
    rounding = _LOSS_ROUNDINGS * float(np.finfo(np.float32).eps) * max(1.0, abs(losses[0]))
    return abs((losses[0] - losses[1]) / 2 - expected), rounding


def _gradients(engine: Engine, names: Sequence[str], saved: bytes) -> dict[str, Array]:
    before = {name: engine.tensor(name).astype(np.float64) for name in names}
    engine.tensor(LEARNING_RATE)[...] = _PROBE_RATE
    engine.call(STEP)
    gradients = {name: (before[name] - engine.tensor(name)) / _PROBE_RATE for name in names}
    engine.saved[:] = saved
    return gradients


def _compare(engine: Engine, saved: bytes, sample: _Sample, direction: Array) -> GradientError:
    norm = float(np.linalg.norm(sample.gradient))
    best = GradientError(tensor=sample.tensor, excess=math.inf, relative=math.inf)
    for size in _STEP_SIZES:
        step = size * sample.size
        move = step * direction
        difference, rounding = _moved(engine, saved, [sample], [move], float(sample.gradient @ move))
        excess = difference / (_TOLERANCE * norm * step + rounding)
        if excess < best.excess:
            relative = difference / (norm * step) if norm else (0.0 if difference <= rounding else math.inf)
            best = GradientError(tensor=sample.tensor, excess=excess, relative=relative)
        if best.excess < _CLEAR:
            break
    return best


def _loss_of_step(engine: Engine) -> float:
    engine.call(STEP)
    return scalar(engine.tensor(LOSS))


def _differing_tensors(program: Artifact, one: Array, other: Array) -> list[str]:
    """By the manifest of `program`; both hold saved memory in the same order, which does not depend on the plan."""
    differing = []
    for name, record in program.manifest.tensors.items():
        part = slice(record.offset, record.offset + record.nbytes)
        if record.role in (Role.PARAMETER, Role.STATE) and not np.array_equal(one[part], other[part]):
            differing.append(name)
    return differing
