"""The page that a run leaves behind. It is a convenience: the run is whole without it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from edgetrain.errors import EdgetrainError

log = logging.getLogger(__name__)


def keep_run_page(folder: Path, notify: Callable[[str], None]) -> None:
    """Writes `report.html` into a finished run's folder. What stops it is said, and raised nowhere."""
    # Here: what draws pages must not be in memory while the program's is measured.
    from edgetrain.report.run_page import write_run_page

    try:
        write_run_page(folder)
    except EdgetrainError as error:
        notify(f"the page of the run was not written: {error.what}")
    except Exception as error:
        log.debug("cannot draw the page of %s", folder, exc_info=True)
        notify(f"the page of the run was not written: {type(error).__name__}: {error}")
