"""Optimizer updates as one kernel a parameter, written in place. Formulas as in PyTorch, so numbers compare.

A kernel takes the parameter, its gradient, its state and the step's scalars, and returns the new parameter followed
by the new state. `p` is read only where its own new value is written, so writing in place is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgetrain._tvm import constant_like, te, tirx
from edgetrain.errors import UsageError
from edgetrain.graph.ir import FIRST_CORRECTION, LEARNING_RATE, SECOND_CORRECTION
from edgetrain.graph.options import OptimizerOptions, TrainOptions

ACCUMULATED = "accumulated"  # the prefix of a gradient that grows over several batches


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    state: tuple[str, ...]  # prefixes of the state tensors each parameter gets
    scalars: tuple[str, ...]  # inputs the host sets before each step
    update: Callable[..., Sequence[Any]]  # TE: (p, g, *state, *scalars) -> (p', *state')


def _decayed(p: Any, g: Any, decay: float, i: tuple[Any, ...]) -> Any:
    return g[i] + p[i] * constant_like(decay, p) if decay else g[i]


def _sgd(options: OptimizerOptions) -> Optimizer:
    decay = options.weight_decay

    def plain(p: Any, g: Any, rate: Any) -> Sequence[Any]:
        return [te.compute(p.shape, lambda *i: p[i] - rate[()] * _decayed(p, g, decay, i), name="sgd_update")]

    def with_momentum(p: Any, g: Any, m: Any, rate: Any) -> Sequence[Any]:
        mu = constant_like(options.momentum, p)
        velocity = te.compute(p.shape, lambda *i: m[i] * mu + _decayed(p, g, decay, i), name="momentum")
        return [te.compute(p.shape, lambda *i: p[i] - rate[()] * velocity[i], name="sgd_update"), velocity]

    if options.momentum == 0.0:
        return Optimizer(state=(), scalars=(LEARNING_RATE,), update=plain)
    return Optimizer(state=("momentum",), scalars=(LEARNING_RATE,), update=with_momentum)


def _adam(options: OptimizerOptions, *, decoupled: bool) -> Optimizer:
    decay = options.weight_decay

    def update(p: Any, g: Any, m: Any, v: Any, rate: Any, first: Any, second: Any) -> Sequence[Any]:
        def gradient(i: tuple[Any, ...]) -> Any:
            return g[i] if decoupled else _decayed(p, g, decay, i)

        def blend(old: Any, new: Callable[[tuple[Any, ...]], Any], beta: float, name: str) -> Any:
            keep, take = constant_like(beta, p), constant_like(1.0 - beta, p)
            return te.compute(p.shape, lambda *i: old[i] * keep + new(i) * take, name=name)

        mean = blend(m, gradient, options.beta1, "first_moment")
        square = blend(v, lambda i: gradient(i) * gradient(i), options.beta2, "second_moment")

        def parameter(*i: Any) -> Any:
            spread = tirx.sqrt(square[i]) / tirx.sqrt(second[()]) + constant_like(options.epsilon, p)
            kept = p[i] - p[i] * (rate[()] * constant_like(decay, p)) if decoupled and decay else p[i]
            return kept - rate[()] / first[()] * (mean[i] / spread)

        return [te.compute(p.shape, parameter, name="adam_update"), mean, square]

    return Optimizer(
        state=("adam_mean", "adam_square"),
        scalars=(LEARNING_RATE, FIRST_CORRECTION, SECOND_CORRECTION),
        update=update,
    )


OPTIMIZERS: Mapping[str, Callable[[OptimizerOptions], Optimizer]] = {
    "sgd": _sgd,
    "adam": lambda options: _adam(options, decoupled=False),
    "adamw": lambda options: _adam(options, decoupled=True),
}


def optimizer_of(options: TrainOptions) -> Optimizer:
    """Raises `UsageError` for a kind that is not in the table."""
    kind = options.optimizer.kind
    if kind not in OPTIMIZERS:
        raise UsageError(f"unknown train.optimizer `{kind}`", fix=f"use one of: {', '.join(OPTIMIZERS)}")
    return OPTIMIZERS[kind](options.optimizer)


def state_prefixes(options: TrainOptions) -> tuple[str, ...]:
    """Prefixes of all the tensors that each trained parameter has beside it."""
    accumulated = (ACCUMULATED,) if options.accumulate > 1 else ()
    return (*optimizer_of(options).state, *accumulated)
