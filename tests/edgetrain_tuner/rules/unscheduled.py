"""A kernel against its unscheduled self: what every rule that writes contractions out is tested by."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm

from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import find
from edgetrain_tuner.rules.rule import Kernel, Rule

TOLERANCE = 2e-5  # of the largest element: sums in another order


def written(function: Any, rule: Rule, machine: Machine) -> Any:
    """What the rule makes of the kernel without a search; None if it declines."""
    kernel = Kernel(function=function, contraction=find(function))
    proposed = rule.propose(kernel, machine)
    return None if proposed is None else rule.write(kernel, machine, proposed)


def assert_computes_the_same(function: Any, rule: Rule, machine: Machine) -> None:
    rewritten = written(function, rule, machine)
    assert rewritten is not None
    assert_same_result(function, rewritten)


def assert_same_result(function: Any, rewritten: Any) -> None:
    """Both kernels compute the same from random numbers, but for the order of sums."""
    arrays, expected = _expected(_Unscheduled(text=str(function), function=function))
    np.testing.assert_allclose(run(rewritten, arrays), expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unscheduled:
    """A kernel, as equal as its text."""

    text: str
    function: Any = field(compare=False)


@functools.lru_cache(maxsize=64)
def _expected(kernel: _Unscheduled) -> tuple[list[Any], Any]:
    """Random inputs and what the kernel makes of them: compiled once for all schedules that it is compared with."""
    random = np.random.default_rng(3)
    arrays = [_drawn(random, p.ty) for p in kernel.function.params[:-1]]
    return arrays, run(kernel.function, arrays)


def _drawn(random: np.random.Generator, ty: Any) -> Any:
    """Normal numbers, or small whole ones."""
    shape, dtype = tuple(int(extent) for extent in ty.shape), str(ty.dtype)
    return random.standard_normal(shape, np.float32) if dtype == "float32" else random.integers(0, 9, shape, dtype)


def run(function: Any, arrays: list[Any]) -> Any:
    """What the kernel computes from these inputs."""
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    compiled = tvm.compile(module, target={"kind": "llvm"})
    result = function.params[-1].ty
    shape, dtype = tuple(int(extent) for extent in result.shape), str(result.dtype)
    # Not zeros: an element that nobody writes must show.
    unwritten = np.full(shape, np.nan if dtype == "float32" else -1, dtype)
    tensors = [tvm.runtime.tensor(a) for a in (*arrays, unwritten)]
    compiled["main"](*tensors)
    return tensors[-1].numpy()
