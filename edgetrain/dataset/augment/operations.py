"""The table of operations: in this order, each with the key of `data.augment` that says how much of it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgetrain.dataset.augment.colour import brighten_randomly, contrast_randomly, saturate_randomly
from edgetrain.dataset.augment.erasing import cut_out_randomly, cut_out_time_randomly
from edgetrain.dataset.augment.geometry import crop_randomly, flip_randomly, rotate_randomly, shift_randomly
from edgetrain.dataset.augment.kinds import Kind
from edgetrain.dataset.augment.signals import add_noise, shift_time_randomly
from edgetrain.dataset.samples import Array
from edgetrain.recipes import AugmentSection

# (sample as floats, the key's value, random numbers of its own) -> a sample of the same shape; never in place.
Apply = Callable[[Array, Any, np.random.Generator], Array]

_PICTURES = frozenset({Kind.PICTURE})
_SOUND_AND_SERIES = frozenset({Kind.SOUND, Kind.SERIES})
_SIGNALS = _PICTURES | _SOUND_AND_SERIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    key: str
    kinds: Collection[Kind]
    apply: Apply
    moves: bool = False  # things lie elsewhere afterwards: labels that say what is where would be wrong

    def amount(self, section: AugmentSection) -> Any:
        """What the recipe says; 0 or `none` is off."""
        return getattr(section, self.key)


OPERATIONS = (
    Operation(key="crop", kinds=_PICTURES, apply=crop_randomly, moves=True),
    Operation(key="rotate", kinds=_PICTURES, apply=rotate_randomly, moves=True),
    Operation(key="shift", kinds=_PICTURES, apply=shift_randomly, moves=True),
    Operation(key="shift", kinds=_SOUND_AND_SERIES, apply=shift_time_randomly, moves=True),
    Operation(key="flip", kinds=_PICTURES, apply=flip_randomly, moves=True),
    Operation(key="brightness", kinds=_PICTURES, apply=brighten_randomly),
    Operation(key="contrast", kinds=_PICTURES, apply=contrast_randomly),
    Operation(key="saturation", kinds=_PICTURES, apply=saturate_randomly),
    Operation(key="cutout", kinds=_PICTURES | {Kind.SOUND}, apply=cut_out_randomly),
    Operation(key="cutout", kinds=frozenset({Kind.SERIES}), apply=cut_out_time_randomly),
    Operation(key="noise", kinds=_SIGNALS, apply=add_noise),
)
MIXES = {"mixup": _SIGNALS | {Kind.TABLE}, "cutmix": _PICTURES}  # which kinds can be mixed how


def is_on(amount: object) -> bool:
    return amount not in (0, "none")


def kinds_of(key: str) -> frozenset[Kind]:
    """What the key works on."""
    own = (operation.kinds for operation in OPERATIONS if operation.key == key)
    return frozenset(MIXES.get(key, ())).union(*own)
