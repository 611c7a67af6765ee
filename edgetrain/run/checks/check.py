"""Does a compiled model train correctly? Three tests of the program itself, on synthetic data."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from edgetrain.graph.ir import LABELS, LEARNING_RATE, Role
from edgetrain.program.artifact import Artifact
from edgetrain.run.checks.gradient_check import GradientError, Verdict, gradient_errors, loss_of_step
from edgetrain.run.engines.engine import Array, Engine
from edgetrain.run.engines.local import LocalEngine
from edgetrain.run.engines.synthetic import fill_synthetic, scatter_labels

FORMAT = "edgetrain.check/1"

_STEPS = 3
_RATE = 0.01
_MOST_TENSORS = 16  # spread evenly over the model; four of them cost 8 steps, one that is not right up to 40
# Parameters are multiplied by these, one attempt each, as long as tensors are unclear: a gradient is the same code
# everywhere, and a softmax or sigmoid that is all but sure at its trained parameters passes nearly nothing back.
_SCALES = (1.0, 0.25, 0.5)
_UNCLEAR = (Verdict.UNSEEN, Verdict.UNCERTAIN)
_LEAST_CERTAIN = 0.75  # of the tensors that show in the loss


# The numbers that a loss of differences is made of, from the size of its labels: output and label round before they are
# subtracted. Of other losses, logarithms of shares, they are 1 at least.
_SIZES_OF_LOSS: Mapping[str, Callable[[float, float], float]] = {
    "mse": lambda labels, loss: max(loss, labels * math.sqrt(loss)),
    "l1": lambda labels, loss: max(loss, labels),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The answer to one question, in a line. What is neither ok nor wrong is `is_open`: the question has no answer."""

    name: str
    is_ok: bool
    text: str
    is_open: bool = False

    @property
    def word(self) -> str:
        return "ok" if self.is_ok else "OPEN" if self.is_open else "FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    model: str
    findings: tuple[Finding, ...]

    @property
    def is_ok(self) -> bool:
        return all(finding.is_ok for finding in self.findings)

    @property
    def verdict(self) -> str:
        if self.is_ok:
            return "trains here"
        is_open = all(finding.is_ok or finding.is_open for finding in self.findings)
        return "runs here; whether it trains correctly IS NOT SHOWN" if is_open else "DOES NOT train correctly here"

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, "is_ok": self.is_ok, **asdict(self)}, indent=1) + "\n"

    def to_text(self) -> str:
        width = max(len(finding.name) for finding in self.findings)
        lines = [f"{f.name:<{width}}  {f.word:<6}  {f.text}" for f in self.findings]
        return "\n".join((*lines, "", f"{self.model} {self.verdict}")) + "\n"


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A program to question: `trained` are its trained parameters, `seed` decides the data and the samples.

    `limits`: what whole numbers fed to an input stay below, where it is known.
    """

    program: Artifact
    loss: str
    trained: tuple[str, ...]
    threads: int
    page_directory: Path
    seed: int = 0
    limits: Mapping[str, int] = field(default_factory=dict)

    def fill(self, engine: Engine, seed: int) -> None:
        """Another batch for another seed."""
        fill_synthetic(engine, self.program.graph, loss=self.loss, seed=seed, limits=self.limits)
        if self.loss in _SIZES_OF_LOSS:
            scatter_labels(engine, self.program.graph, seed=seed)

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
    """Compares gradients with central differences of the loss, along the gradient itself and along random vectors.

    Where the differences say nothing certain they are asked again: other elements, other data, smaller parameters.
    """
    with probe.engine() as engine:
        return ask_gradients(engine, probe, progress)


def ask_gradients(engine: Engine, probe: Probe, progress: Callable[[int, int], None] = _no_progress) -> Finding:
    """`check_gradients` of an engine that is there."""
    chosen = spread(probe.trained, _MOST_TENSORS)
    saved = bytes(engine.saved)
    errors: dict[str, GradientError] = {}
    for attempt, scale in enumerate(_SCALES):
        asked = [name for name in chosen if name not in errors or errors[name].verdict in _UNCLEAR]
        for name in probe.trained if asked else ():
            engine.tensor(name)[...] *= scale
        for error in _errors(engine, probe, asked, seed=probe.seed + attempt):
            known = errors.get(error.tensor)
            if known is None or error.verdict not in _UNCLEAR or error.verdict < known.verdict:
                errors[error.tensor] = error
            progress(len(errors), len(chosen))
        engine.saved[:] = saved
    return gradients_answer([errors[name] for name in chosen], len(probe.trained))


def _errors(engine: Engine, probe: Probe, names: Sequence[str], *, seed: int) -> Iterator[GradientError]:
    if names:
        probe.fill(engine, seed)
        size_of = _SIZES_OF_LOSS.get(probe.loss)
        labels = engine.tensor(LABELS).astype(np.float64)
        sizes = {"size_of": partial(size_of, float(np.sqrt(np.mean(labels**2))))} if size_of else {}
        yield from gradient_errors(engine, names, seed=seed, **sizes)


def gradients_answer(errors: Sequence[GradientError], trained: int) -> Finding:
    """One line for the tensors asked, of so many that are trained. Right only if nearly all that shows is certain."""
    by_verdict = {v: [e for e in errors if e.verdict is v] for v in Verdict}
    right, unseen = by_verdict[Verdict.RIGHT], by_verdict[Verdict.UNSEEN]
    uncertain, wrong = by_verdict[Verdict.UNCERTAIN], by_verdict[Verdict.WRONG]
    worst = max(wrong or right or unseen or uncertain, key=lambda error: error.excess)
    texts = [
        f"{len(errors)} of {trained} tensors against finite differences, worst `{worst.tensor}` {_off_by(worst)}",
    ]
    if wrong:
        texts.append(f"wrong: {_names(wrong)}")
    if uncertain:
        widest = max(uncertain, key=lambda error: error.spread)
        apart = f"{widest.spread:.1%} of the gradient" if math.isfinite(widest.spread) else "more than the gradient"
        texts.append(
            f"uncertain: {_names(uncertain)}, whose differences contradict each other (kinks), by up to {apart}"
        )
    if unseen:
        texts.append(f"{len(unseen)} too small for float32 to show")
    is_settled = bool(right) and len(right) >= _LEAST_CERTAIN * (len(right) + len(uncertain))
    is_ok = is_settled and not wrong
    if not is_settled and not wrong:
        texts.append("too few are certain to say that the gradients are right")
    return Finding(name="gradients", is_ok=is_ok, is_open=not wrong and not is_ok, text="; ".join(texts))


def _names(errors: Sequence[GradientError]) -> str:
    return ", ".join(f"`{error.tensor}`" for error in errors)


def _off_by(error: GradientError) -> str:
    return (
        f"off by {error.relative:.2%}" if math.isfinite(error.relative) else "is no number, or 0 where it should not be"
    )


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
    probe.fill(engine, probe.seed)
    engine.tensor(LEARNING_RATE)[...] = _RATE
    return tuple(loss_of_step(engine) for _ in range(_STEPS))


def spread(names: Sequence[str], count: int) -> tuple[str, ...]:
    """At most `count` of the names, the first and the last among them."""
    if len(names) <= count:
        return tuple(names)
    return tuple(names[round(i * (len(names) - 1) / (count - 1))] for i in range(count))


def _differing_tensors(program: Artifact, one: Array, other: Array) -> list[str]:
    """By the manifest of `program`; both hold saved memory in the same order, which does not depend on the plan."""
    differing = []
    for name, record in program.manifest.tensors.items():
        if record.role not in (Role.PARAMETER, Role.STATE):
            continue
        if not np.array_equal(one[record.place_in_file], other[record.place_in_file]):
            differing.append(name)
    return differing
