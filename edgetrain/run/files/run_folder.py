"""The names of a run folder's files: an interface, for people and for `--resume`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgetrain.compiler.schedules import SCHEDULES
from edgetrain.run.files.report import REPORT
from edgetrain.run.files.sessions import SESSIONS

LIVE = "live.json"
REQUEST = "request.json"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where a run keeps its files."""

    path: Path

    @property
    def recipe(self) -> Path:
        return self.path / "recipe.json"

    @property
    def reading(self) -> Path:
        """How the run's data became numbers: a `Reading`."""
        return self.path / "reading.json"

    @property
    def data(self) -> Path:
        """A digest of the run's data."""
        return self.path / "data.json"

    @property
    def schedules(self) -> Path:
        return self.path / SCHEDULES

    @property
    def program(self) -> Path:
        return self.path / "program"

    @property
    def model(self) -> Path:
        return self.path / "model.onnx"

    @property
    def report(self) -> Path:
        return self.path / REPORT

    @property
    def sessions(self) -> Path:
        """What each session of the run took."""
        return self.path / SESSIONS

    @property
    def page(self) -> Path:
        """The report as a web page."""
        return self.path / "report.html"

    @property
    def adapters(self) -> Path:
        """What stands beside the model's weights and is merged into them; missing where nothing does."""
        return self.path / "adapters.json"
