"""The names of a run folder's files: an interface, for people and for `--resume`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgetrain.compiler.schedules import SCHEDULES
from edgetrain.errors import DeviceError


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where a run keeps its files."""

    path: Path

    @property
    def recipe(self) -> Path:
        return self.path / "recipe.json"

    @property
    def schedules(self) -> Path:
        return self.path / SCHEDULES

    @property
    def program(self) -> Path:
        return self.path / "program"

    @property
    def model(self) -> Path:
        return self.path / "model.onnx"

    def create(self) -> None:
        """Raises `DeviceError` when the folder cannot be made."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DeviceError(
                f"cannot make the run folder `{self.path}`", why=str(error), fix="choose another with --out DIR"
            ) from error
