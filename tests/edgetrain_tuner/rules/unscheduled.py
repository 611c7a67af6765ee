"""A kernel against its unscheduled self: what every rule that writes contractions out is tested by."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm

from edgetrain_tuner.features import Features
from edgetrain_tuner.rules import ContractionRule
from edgetrain_tuner.rules.contraction import find

TOLERANCE = 2e-5  # of the largest element: sums in another order


def written(function: Any, rule: ContractionRule, features: Features) -> Any | None:
    """What the rule makes of the kernel; None if it declines, or if the kernel is no contraction."""
    contraction = find(function)
    return None if contraction is None else rule(contraction, features)


def assert_computes_the_same(function: Any, rule: ContractionRule, features: Features) -> None:
    random = np.random.default_rng(3)
    shapes = [tuple(int(extent) for extent in p.ty.shape) for p in function.params[:-1]]
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    rewritten = written(function, rule, features)
    assert rewritten is not None
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
