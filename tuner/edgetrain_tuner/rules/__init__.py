"""Schedule rules, in the order they are asked: `apply(function, features) -> scheduled function or None`.

The first answer wins; the generic rule answers always. A faster rule for a kernel family is one more file here and
one more entry in `RULES`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgetrain_tuner.features import Features
from edgetrain_tuner.rules import channelwise, generic, packed_product

ScheduleRule = Callable[[Any, Features], Any]

RULES: tuple[ScheduleRule, ...] = (packed_product.apply, channelwise.apply, generic.apply)


def schedule(function: Any, features: Features) -> Any:
    """The scheduled PrimFunc from the first rule that knows `function`."""
    for rule in RULES:
        scheduled = rule(function, features)
        if scheduled is not None:
            return scheduled
    return function
