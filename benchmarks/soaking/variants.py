"""The runs that are disturbed: small ones, which together use all of the machinery that a run can need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_SHORT = ("train.epochs=120", "data.limit=720", "train.checkpoint_every=11")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What `fit` is told, and the sizes that `edgetrain budget` asks for while it runs."""

    words: tuple[str, ...]
    flags: tuple[str, ...] = ()
    budgets: tuple[str, ...] = ()

    def fit(self, seed: int) -> tuple[str, ...]:
        return ("fit", "digits", *self.words, f"train.seed={seed}", "--threads", "1", "--trial-time", "0s", *self.flags)


VARIANTS: Mapping[str, Variant] = {
    "plain": Variant(words=_SHORT, budgets=("1MB", "970kB", "2MB", "10kB")),
    "paging": Variant(words=_SHORT, flags=("--budget", "1MB"), budgets=("960kB", "3MB")),
    "stored parameters": Variant(
        words=("train.batch=4", "train.epochs=10", "data.limit=720", "train.checkpoint_every=50"),
        flags=("--budget", "460kB"),
        budgets=("455kB", "1MB"),
    ),
    "recomputing": Variant(
        words=("model.source=zoo:digits-cnn-bn", *_SHORT), flags=("--budget", "1180kB"), budgets=("1300kB", "2MB")
    ),
    "augmented": Variant(words=(*_SHORT, "data.augment.shift=0.1", "data.augment.noise=0.1", "data.augment.mixup=0.2")),
    "accumulating, no validation": Variant(
        words=("train.batch=8", "train.accumulate=4", "data.validation=0", "train.epochs=120", "data.limit=512")
    ),
    "adapting": Variant(words=_SHORT, flags=("--adapt",), budgets=("1MB", "2MB")),
    "sharing": Variant(words=_SHORT, flags=("--share", "soak=2MB"), budgets=("1MB",)),
}
