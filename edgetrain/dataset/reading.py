"""What a run remembers of how its data was read, so that new samples come to mean the same."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgetrain.errors import DataError
from edgetrain.files.sealed import parse_sealed
from edgetrain.schema import read_table, setting

FORMAT = "edgetrain.reading/1"

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Values are trained as `(value - mean) / std`; what the model gives is turned back."""

    mean: float = setting(0.0)
    std: float = setting(1.0, above=0)

    @property
    def is_identity(self) -> bool:
        return self == Scaling()

    def forth(self, values: Array) -> Array:
        """What is trained, as float32."""
        return ((np.asarray(values, np.float64) - self.mean) / self.std).astype(np.float32)

    def back(self, values: Array) -> Array:
        """The inverse, in the type of `values`."""
        return values if self.is_identity else (values.astype(np.float64) * self.std + self.mean).astype(values.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How samples and labels became numbers, as far as the recipe's `data` section does not say it.

    `class_names` are in the order of the model's outputs, whatever classes another folder holds.
    """

    class_names: tuple[str, ...] = setting(())
    columns: tuple[str, ...] = setting(())  # a table's features, in the order of the model's input
    fills: tuple[float, ...] = setting(())  # what stands for a missing value in each of the columns; empty: nothing
    # The columns that hold words: one input of 0 or 1 for each word, in this order. A missing word is none of them.
    categories: Mapping[str, tuple[str, ...]] = setting({})
    target: Scaling = Scaling()

    def to_json(self) -> str:
        """Canonical text: equal readings give equal bytes."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=1) + "\n"

    @staticmethod
    def from_json(text: str, *, where: str) -> Reading:
        """The inverse of `to_json`. Raises `DataError` naming `where` for anything else."""
        mistakes: list[str] = []
        reading = None
        try:
            data = parse_sealed(text)
            if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
                raise ValueError(f"its format is not `{FORMAT}`")
            scaling = data.pop("target", {})
            if not isinstance(scaling, Mapping):
                raise ValueError("`target` is no table")
            target = read_table(Scaling, scaling, where="target.", mistakes=mistakes)
            reading = read_table(Reading, data, where="", mistakes=mistakes, given={"target": target})
        except (ValueError, RecursionError) as error:
            mistakes.append(str(error))
        if reading is None or mistakes:
            raise DataError(
                f"{where} cannot be used", why="; ".join(mistakes), fix="train again, or restore it from a copy"
            )
        return reading
