"""The page of a finished run: the verdict first, then how it came about, then what it takes to repeat it."""

from __future__ import annotations

from pathlib import Path

from edgetrain.files.atomic_file import replaced_file
from edgetrain.report.page import Page, Section, to_html
from edgetrain.report.run_record import RunRecord, key_of, read_run
from edgetrain.report.sections.augmentation import augmentation
from edgetrain.report.sections.classes import calibration, classes
from edgetrain.report.sections.memory import memory
from edgetrain.report.sections.mistakes import mistakes
from edgetrain.report.sections.operations import step_cost
from edgetrain.report.sections.provenance import provenance
from edgetrain.report.sections.training import training
from edgetrain.report.sections.values import values
from edgetrain.report.sections.verdict import lead
from edgetrain.run.files.protected import protected_file
from edgetrain.run.files.run_folder import RunFolder


def run_page(run: RunRecord, *, with_samples: bool = True) -> Page:
    """`with_samples`: with pictures or texts of the evaluation data."""
    learned = run.learned
    found: tuple[Section | None, ...] = (
        training(run),
        memory(run),
        mistakes(learned, with_samples=with_samples) if learned is not None else None,
        classes(learned) if learned is not None else None,
        values(learned) if learned is not None else None,
        calibration(learned) if learned is not None else None,
        augmentation(learned, with_samples=with_samples) if learned is not None else None,
        step_cost(run),
        provenance(run),
    )
    return Page(title=run.name, kind="run", lead=lead(run), sections=tuple(s for s in found if s is not None))


def write_run_page(folder: Path, out: Path | None = None, *, with_samples: bool = True) -> Path:
    """Writes the page of the run in `folder`, to its `report.html` without `out`: encrypted there, if the run is.

    Raises as `read_run` does."""
    path = out if out is not None else RunFolder(folder).page
    text = to_html(run_page(read_run(folder), with_samples=with_samples))
    if out is None:
        with protected_file(path, key_of(folder)) as file:
            file.write(text.encode())
    else:
        with replaced_file(path, is_shared=True) as shared:
            shared.write(text.encode())
    return path
