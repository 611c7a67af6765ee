"""What a recipe asks for, checked against the data, and as what happens to one row in one epoch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from edgetrain.dataset.augment.colour import COLOURS
from edgetrain.dataset.augment.kinds import Kind, channels_of, kind_of
from edgetrain.dataset.augment.mixing import Mix, draw_mix
from edgetrain.dataset.augment.operations import MIXES, OPERATIONS, is_on, kinds_of
from edgetrain.dataset.augment.randomness import Address, random_at
from edgetrain.dataset.convert import Change, Conversion, is_channels_last
from edgetrain.dataset.samples import Array, Part
from edgetrain.errors import UsageError
from edgetrain.recipes import CLASS_LOSSES, AugmentSection

_KEYS = tuple(dict.fromkeys((*(operation.key for operation in OPERATIONS), *MIXES)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Augmentation:
    """What is done to training samples of one kind."""

    section: AugmentSection
    kind: Kind

    @staticmethod
    def of(section: AugmentSection, part: Part) -> Augmentation | None:
        """None where everything is off."""
        if not any(is_on(getattr(section, key)) for key in _KEYS):
            return None
        return Augmentation(section=section, kind=kind_of(part))

    def variation(self, *, seed: int, epoch: int) -> Variation:
        return Variation(augmentation=self, seed=seed, epoch=epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """An augmentation in one epoch of one seed: each row has one result, whichever batch reads it."""

    augmentation: Augmentation
    seed: int
    epoch: int

    @property
    def mixes(self) -> bool:
        return self.augmentation.section.mixes

    def _address(self, row: int) -> Address:
        return Address(seed=self.seed, epoch=self.epoch, row=row)

    def change(self, row: int) -> Change:
        """What happens to the row's sample after it became floats and before it is normalised."""

        def change(value: Array, *, is_bounded: bool) -> Array:
            if self.augmentation.kind is Kind.PICTURE and is_channels_last(value):
                return self._changed(value.transpose(2, 0, 1), row, is_bounded=is_bounded).transpose(1, 2, 0)
            return self._changed(value, row, is_bounded=is_bounded)

        return change

    def _changed(self, value: Array, row: int, *, is_bounded: bool) -> Array:
        section, kind, address = self.augmentation.section, self.augmentation.kind, self._address(row)
        value = np.ascontiguousarray(value, np.float32)  # a picture may be a view with its channels last: slow to read
        for operation in OPERATIONS:
            amount = operation.amount(section)
            if kind in operation.kinds and is_on(amount):
                value = operation.apply(value, amount, random_at(address, operation.key))
        return value.clip(0.0, 1.0) if is_bounded else value

    def mix(self, row: int, *, samples: int) -> Mix:
        """What the row is mixed with."""
        return draw_mix(self.augmentation.section, self._address(row), samples=samples)


def check_augmentation(section: AugmentSection, part: Part, conversion: Conversion, *, loss: str) -> None:
    """Raises one `UsageError` with all that the samples, the labels or the loss of the part do not go with."""
    augmentation = Augmentation.of(section, part)
    if augmentation is None:
        return
    kind, asked = augmentation.kind, [key for key in _KEYS if is_on(getattr(section, key))]
    wrong = {key: f"works on {_listed(kinds_of(key))}" for key in asked if kind not in kinds_of(key)}
    if not wrong and "saturation" in asked and (channels := channels_of(part, conversion)) != COLOURS:
        wrong["saturation"] = f"works on pictures of 3 channels, and these have {channels}"
    if _says_what_is_where(part, loss):
        moved = {operation.key for operation in OPERATIONS if operation.moves} | set(MIXES)
        wrong |= {key: "would not move or mix labels of places" for key in asked if key in moved and key not in wrong}
    if not wrong:
        return
    raise UsageError(
        f"the samples are {kind}: " + "; ".join(f"`data.augment.{key}` {why}" for key, why in wrong.items()),
        why=_WHY.get(kind, f"what works on them is {_listed(key for key in _keys_for(kind) if key not in wrong)}"),
        fix="set " + " ".join(f"data.augment.{key}={'none' if key == 'flip' else 0}" for key in wrong),
    )


_WHY = {
    Kind.SERIES: "an array of two dimensions is a picture where it holds bytes (uint8), and a series where it does not",
    Kind.TOKENS: "another token would be another text",
    Kind.SEVERAL: "what happens to one array would have to happen to the others",
}


def _keys_for(kind: Kind) -> list[str]:
    return [key for key in _KEYS if kind in kinds_of(key)]


def _listed(words: Iterable[str]) -> str:
    return ", ".join(sorted(words))


def _says_what_is_where(part: Part, loss: str) -> bool:
    """Whether a sample's label is a map of classes, or a picture itself."""
    return part.labels.ndim > 2 or (part.labels.ndim == 2 and loss in CLASS_LOSSES)
