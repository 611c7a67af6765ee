"""Updates against transcriptions of the formulas in PyTorch's documentation (SGD, Adam, AdamW), in float64 NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgetrain._tvm import Target, relax, runtime, tvm
from edgetrain.graph.gradients.rule import emit_kernel
from edgetrain.graph.optimizers import OPTIMIZERS
from edgetrain.graph.options import OptimizerOptions

Array = npt.NDArray[Any]
SHAPE = (3, 4)
STEPS = 6
RATE = 0.05

CASES: Mapping[str, OptimizerOptions] = {
    "sgd": OptimizerOptions(kind="sgd"),
    "sgd_decay": OptimizerOptions(kind="sgd", weight_decay=0.1),
    "sgd_momentum": OptimizerOptions(kind="sgd", momentum=0.9),
    "sgd_momentum_decay": OptimizerOptions(kind="sgd", momentum=0.8, weight_decay=0.01),
    "adam": OptimizerOptions(kind="adam"),
    "adam_decay": OptimizerOptions(kind="adam", beta1=0.8, beta2=0.95, weight_decay=0.1, epsilon=1e-3),
    "adamw": OptimizerOptions(kind="adamw"),
    "adamw_decay": OptimizerOptions(kind="adamw", beta1=0.7, beta2=0.9, weight_decay=0.1, epsilon=1e-4),
}


def _torch_sgd(p: Array, gradients: Sequence[Array], options: OptimizerOptions) -> Array:
    buffer: Array | None = None
    for g in gradients:
        g = g + options.weight_decay * p
        if options.momentum:
            buffer = g if buffer is None else options.momentum * buffer + g
            g = buffer
        p = p - RATE * g
    return p


def _torch_adam(p: Array, gradients: Sequence[Array], options: OptimizerOptions) -> Array:
    m, v = np.zeros_like(p), np.zeros_like(p)
    for t, g in enumerate(gradients, start=1):
        if options.kind == "adamw":
            p = p - RATE * options.weight_decay * p
        else:
            g = g + options.weight_decay * p
        m = options.beta1 * m + (1 - options.beta1) * g
        v = options.beta2 * v + (1 - options.beta2) * g * g
        m_hat, v_hat = m / (1 - options.beta1**t), v / (1 - options.beta2**t)
        p = p - RATE * m_hat / (np.sqrt(v_hat) + options.epsilon)
    return p


REFERENCES: Mapping[str, Callable[[Array, Sequence[Array], OptimizerOptions], Array]] = {
    "sgd": _torch_sgd,
    "adam": _torch_adam,
    "adamw": _torch_adam,
}


@pytest.fixture(scope="module")
def machine() -> Any:
    builder = relax.BlockBuilder()
    for name, options in CASES.items():
        optimizer = OPTIMIZERS[options.kind](options)
        tensors = [relax.Var(n, relax.TensorType(SHAPE, "float64")) for n in ("p", "g", *optimizer.state)]
        scalars = [relax.Var(n, relax.TensorType((), "float64")) for n in optimizer.scalars]

        def update(*operands: Any, optimizer: Any = optimizer) -> list[Any]:
            return list(optimizer.update(*operands))

        with builder.function(name, [*tensors, *scalars]):
            with builder.dataflow():
                fresh = emit_kernel(builder, update, *tensors, *scalars)
                returned = builder.emit_output(fresh)
            builder.emit_func_output(returned)
    return relax.VirtualMachine(tvm.compile(builder.get(), target=Target({"kind": "llvm"})), tvm.cpu())


def _train(machine: Any, name: str, p: Array, gradients: Sequence[Array]) -> Array:
    options = CASES[name]
    optimizer = OPTIMIZERS[options.kind](options)
    values = [p, *(np.zeros(SHAPE) for _ in optimizer.state)]
    for t, gradient in enumerate(gradients, start=1):
        scalars = [RATE, 1 - options.beta1**t, 1 - options.beta2**t][: len(optimizer.scalars)]
        operands = [values[0], gradient, *values[1:], *(np.array(s) for s in scalars)]
        results = machine[name](*(runtime.tensor(v) for v in operands))
        values = [r.numpy() for r in (results if len(values) > 1 else [results])]
    return values[0]


def test_every_optimizer_is_tested() -> None:
    assert {options.kind for options in CASES.values()} == set(OPTIMIZERS) == set(REFERENCES)


@pytest.mark.compile
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_several_steps_follow_pytorch(name: str, seed: int, machine: Any) -> None:
    rng = np.random.default_rng(seed)
    p = rng.standard_normal(SHAPE)
    gradients = [rng.standard_normal(SHAPE) for _ in range(STEPS)]
    options = CASES[name]
    expected = REFERENCES[options.kind](p, gradients, options)
    np.testing.assert_allclose(_train(machine, name, p, gradients), expected, rtol=1e-10)


def test_sgd_without_momentum_keeps_no_state() -> None:
    assert OPTIMIZERS["sgd"](CASES["sgd"]).state == ()
    assert OPTIMIZERS["sgd"](CASES["sgd_momentum"]).state == ("momentum",)
