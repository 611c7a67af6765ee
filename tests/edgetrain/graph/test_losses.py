from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgetrain._tvm import Target, relax, runtime, tvm
from edgetrain.errors import UsageError
from edgetrain.graph.losses import LOSSES, label_shape

Array = npt.NDArray[Any]
STEP = 1e-5


@dataclass(frozen=True, kw_only=True)
class LossCase:
    loss: str
    shape: tuple[int, ...]
    scale: float = 1.0

    @property
    def name(self) -> str:
        return f"{self.loss}_{'x'.join(map(str, self.shape))}_{self.scale:g}".replace("-", "_")

    def values(self, seed: int = 0) -> tuple[Array, Array]:
        rng = np.random.default_rng(seed)
        output = rng.standard_normal(self.shape) * self.scale
        if self.loss == "cross-entropy":
            return output, rng.integers(0, self.shape[1], label_shape(self.loss, self.shape))
        labels = rng.uniform(0, 1, self.shape) if self.loss == "bce" else rng.standard_normal(self.shape)
        return output, labels


CASES = (
    LossCase(loss="cross-entropy", shape=(4, 5)),
    LossCase(loss="cross-entropy", shape=(1, 2)),
    LossCase(loss="cross-entropy", shape=(2, 3, 4)),
    LossCase(loss="cross-entropy", shape=(2, 3, 2, 2)),
    LossCase(loss="cross-entropy", shape=(3, 4), scale=300.0),
    LossCase(loss="bce", shape=(3, 2)),
    LossCase(loss="bce", shape=(4,)),
    LossCase(loss="bce", shape=(3, 2), scale=300.0),
    LossCase(loss="mse", shape=(3, 2, 2)),
    LossCase(loss="mse", shape=(2,)),
    LossCase(loss="l1", shape=(3, 4)),
)


def _cross_entropy(output: Array, labels: Array) -> float:
    logits = np.moveaxis(output, 1, -1).reshape(-1, output.shape[1])
    shifted = logits - logits.max(1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return float(-log_probabilities[np.arange(len(logits)), labels.reshape(-1)].mean())


def _bce(output: Array, labels: Array) -> float:
    """log(1 + eˣ) − x·y, which is −y·log σ(x) − (1 − y)·log(1 − σ(x))."""
    return float((np.logaddexp(0, output) - output * labels).mean())


REFERENCES: Mapping[str, Callable[[Array, Array], float]] = {
    "cross-entropy": _cross_entropy,
    "bce": _bce,
    "mse": lambda output, labels: float(((output - labels) ** 2).mean()),
    "l1": lambda output, labels: float(np.abs(output - labels).mean()),
}


@pytest.fixture(scope="module")
def machine() -> Any:
    builder = relax.BlockBuilder()
    for case in CASES:
        values = case.values()
        output, labels = (
            relax.Var(n, relax.TensorType(v.shape, str(v.dtype)))
            for n, v in zip(("output", "labels"), values, strict=True)
        )
        with builder.function(case.name, [output, labels]):
            with builder.dataflow():
                returned = builder.emit_output(relax.Tuple(list(LOSSES[case.loss].emit(builder, output, labels))))
            builder.emit_func_output(returned)
    return relax.VirtualMachine(tvm.compile(builder.get(), target=Target({"kind": "llvm"})), tvm.cpu())


def _run(machine: Any, case: LossCase, output: Array, labels: Array) -> tuple[float, Array]:
    loss, gradient = machine[case.name](runtime.tensor(output), runtime.tensor(labels))
    return float(loss.numpy()), gradient.numpy()


def test_every_loss_is_tested() -> None:
    assert {c.loss for c in CASES} == set(LOSSES) == set(REFERENCES)


@pytest.mark.compile
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_loss_is_the_formula(case: LossCase, seed: int, machine: Any) -> None:
    output, labels = case.values(seed)
    loss, _ = _run(machine, case, output, labels)
    assert loss == pytest.approx(REFERENCES[case.loss](output, labels), rel=1e-12)


@pytest.mark.compile
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_gradient_is_the_finite_difference_of_the_loss(case: LossCase, machine: Any) -> None:
    output, labels = case.values()
    expected = np.zeros_like(output)
    for index in np.ndindex(output.shape):
        ends = []
        for sign in (1.0, -1.0):
            moved = output.copy()
            moved[index] += sign * STEP
            ends.append(_run(machine, case, moved, labels)[0])
        expected[index] = (ends[0] - ends[1]) / (2 * STEP)
    np.testing.assert_allclose(_run(machine, case, output, labels)[1], expected, rtol=0, atol=2e-7)


@pytest.mark.parametrize(
    ("loss", "shape", "expected"),
    [
        ("cross-entropy", (8, 10), (8,)),
        ("cross-entropy", (2, 5, 16, 16), (2, 16, 16)),
        ("bce", (8, 10), (8, 10)),
        ("mse", (8,), (8,)),
    ],
)
def test_label_shape(loss: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert label_shape(loss, shape) == expected


def test_cross_entropy_without_a_class_axis_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"\(batch, classes, …\).*\[8\]"):
        label_shape("cross-entropy", (8,))
