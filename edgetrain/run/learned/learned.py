"""What a trained model was found to do, as plain data: `learned.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgetrain.errors import DataError
from edgetrain.files.sealed import parse_sealed, sealed
from edgetrain.files.secret_key import SecretKey
from edgetrain.run.files.protected import protected_bytes, protected_file
from edgetrain.run.learned.calibration import Bin, Calibration
from edgetrain.run.learned.class_outcomes import Cell, ClassOutcomes, ClassRow
from edgetrain.run.learned.value_outcomes import Quantile, ValueOutcomes

FORMAT = "edgetrain.learned/1"
LEARNED = "learned.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class HardSample:
    """One of the samples with the highest loss. `picture` is the address of an image that needs no other file."""

    index: int  # within its part
    row: int  # within the source
    loss: float
    is_wrong: bool | None  # None where right and wrong do not apply
    actual: float | None
    predicted: float | None
    confidence: float | None
    file: str = ""
    text: str = ""
    picture: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """Which of `classes` and `values` there is depends on the loss; both are None for losses of other kinds."""

    part: str  # of the data: "test" or "validation"
    samples: int
    class_names: tuple[str, ...] = ()
    classes: ClassOutcomes | None = None
    values: ValueOutcomes | None = None
    calibration: Calibration | None = None
    hardest: tuple[HardSample, ...] = ()
    augmented: tuple[tuple[str, ...], ...] = ()  # pictures of training samples: as it is, then as epochs had it

    def to_json(self) -> str:
        """Canonical: the same findings give the same bytes."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1, allow_nan=False) + "\n"

    @staticmethod
    def from_json(text: str, *, where: str) -> Learned:
        """The inverse of `to_json`. Raises `DataError` naming `where` for anything else."""
        try:
            data = parse_sealed(text)
            if data.pop("format") != FORMAT:
                raise ValueError(f"its format is not `{FORMAT}`")
            return _learned(data)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise DataError(f"{where} cannot be used", why=str(error), fix="remove it, or train again") from error


def write_learned(learned: Learned, folder: Path, key: SecretKey | None = None) -> None:
    """Writes `learned.json`, whole or not at all. Raises `DeviceError` when the disk refuses."""
    with protected_file(folder / LEARNED, key) as file:
        file.write(sealed(learned.to_json()).encode())


def read_learned(folder: Path, key: SecretKey | None = None) -> Learned | None:
    """What `write_learned` wrote; None where it wrote nothing. Raises `DataError` for a broken file."""
    path = folder / LEARNED
    if not path.is_file():
        return None
    return Learned.from_json(protected_bytes(path, key).decode(errors="replace"), where=str(path))


def _learned(data: Mapping[str, Any]) -> Learned:
    classes, values, calibration = data["classes"], data["values"], data["calibration"]
    return Learned(
        part=str(data["part"]),
        samples=int(data["samples"]),
        class_names=tuple(map(str, data["class_names"])),
        classes=None
        if classes is None
        else ClassOutcomes(
            rows=tuple(ClassRow(**row) for row in classes["rows"]),
            cells=tuple(Cell(**cell) for cell in classes["cells"]),
        ),
        values=None if values is None else _values(values),
        calibration=None
        if calibration is None
        else Calibration(
            bins=tuple(Bin(**each) for each in calibration["bins"]), expected_error=calibration["expected_error"]
        ),
        hardest=tuple(HardSample(**sample) for sample in data["hardest"]),
        augmented=tuple(tuple(map(str, row)) for row in data.get("augmented", ())),
    )


def _values(data: Mapping[str, Any]) -> ValueOutcomes:
    quantiles = tuple(Quantile(**each) for each in data["quantiles"])
    points = tuple((float(true), float(predicted)) for true, predicted in data["points"])
    return ValueOutcomes(**{**data, "quantiles": quantiles, "points": points})
