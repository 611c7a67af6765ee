"""Schedule rules: `apply(function, features) -> scheduled function or None`.

The first answer wins; the generic rule answers always. Rules for contractions are asked first, after one analysis of
the kernel. A faster rule for a kernel family is one more file here and one more entry in a table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgetrain_tuner.features import Features
from edgetrain_tuner.rules import channelwise, generic, packed_product
from edgetrain_tuner.rules.contraction import MINIMUM_LANES, Contraction, find

ScheduleRule = Callable[[Any, Features], Any]
ContractionRule = Callable[[Contraction, Features], Any]

CONTRACTION_RULES: tuple[ContractionRule, ...] = (packed_product.write, channelwise.write)
RULES: tuple[ScheduleRule, ...] = (generic.apply,)


def schedule(function: Any, features: Features) -> Any:
    """The scheduled PrimFunc from the first rule that knows `function`."""
    contraction = find(function) if features.lanes >= MINIMUM_LANES else None
    if contraction is not None:
        for write in CONTRACTION_RULES:
            written = write(contraction, features)
            if written is not None:
                return written
    for apply in RULES:
        scheduled = apply(function, features)
        if scheduled is not None:
            return scheduled
    return function
