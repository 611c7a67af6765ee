"""A kernel against its unscheduled self: what every rule that writes contractions out is tested by."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm

from edgetrain_tuner.features import Features
from edgetrain_tuner.rules.contraction import find
from edgetrain_tuner.rules.rule import Kernel, Rule

TOLERANCE = 2e-5  # of the largest element: sums in another order


def written(function: Any, rule: Rule, features: Features) -> Any:
    """What the rule makes of the kernel without a search; None if it declines."""
    kernel = Kernel(function=function, contraction=find(function))
    proposed = rule.propose(kernel, features)
    return None if proposed is None else rule.write(kernel, features, proposed)


def assert_computes_the_same(function: Any, rule: Rule, features: Features) -> None:
    rewritten = written(function, rule, features)
    assert rewritten is not None
    assert_same_result(function, rewritten)


def assert_same_result(function: Any, rewritten: Any) -> None:
    """Both kernels compute the same from random numbers, but for the order of sums."""
    random = np.random.default_rng(3)
    shapes = [tuple(int(extent) for extent in p.ty.shape) for p in function.params[:-1]]
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    expected = _run(function, arrays)
    np.testing.assert_allclose(_run(rewritten, arrays), expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())


def _run(function: Any, arrays: list[Any]) -> Any:
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    compiled = tvm.compile(module, target={"kind": "llvm"})
    shape = tuple(int(extent) for extent in function.params[-1].ty.shape)
    # Not zeros: an element that nobody writes must show.
    tensors = [tvm.runtime.tensor(a) for a in (*arrays, np.full(shape, np.nan, np.float32))]
    compiled["main"](*tensors)
    return tensors[-1].numpy()
