"""Which folder a run uses: the first free one for a new run, the newest with a checkpoint to go on."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from edgetrain.errors import DataError, UsageError
from edgetrain.files.atomic_file import replaced_file
from edgetrain.files.regular_file import irregular_kind, require_regular
from edgetrain.files.sealed import parse_sealed, sealed
from edgetrain.files.texts import parse_json
from edgetrain.recipes import FORMAT as RECIPE_FORMAT
from edgetrain.run.files.checkpoint import BEST, NEWEST, PREVIOUS
from edgetrain.run.files.epochs import EPOCHS
from edgetrain.run.files.plain_data import record_from_plain
from edgetrain.run.files.report import PLOT, REPORT
from edgetrain.run.files.run_folder import LIVE, REQUEST, RunFolder
from edgetrain.run.learned.learned import LEARNED
from edgetrain.run.loop.callbacks import Callback, Logs
from edgetrain.run.loop.step_log import LOG

RUNS = Path("runs")
JOB = "job.json"
_FORMAT = "edgetrain.job/1"
_RECIPE_FORMAT = RECIPE_FORMAT.rpartition("/")[0]  # of any version


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """What a run was asked for besides its recipe: `--resume` asks for the same where no flag says otherwise."""

    target: str
    solver: str
    memory_bytes: int | None = None
    deadline_s: float | None = None
    energy_j: float | None = None
    written_bytes: int | None = None
    energy_share: float | None = None  # None: time is minimised
    mip_solver: str | None = None
    nodes: int | None = None
    co2_g_per_kwh: float | None = None  # None: the world's average
    threads: int | None = None
    adapt: bool = False
    share: str | None = None  # as --share was given
    weight: int | None = None

    def write(self, folder: Path) -> None:
        """Raises `DeviceError` when the disk refuses."""
        with replaced_file(folder / JOB) as file:
            file.write(sealed(json.dumps({"format": _FORMAT, **asdict(self)}, indent=1)).encode())

    @staticmethod
    def read(folder: Path) -> JobRecord | None:
        """What `write` wrote; None for a folder without one. Raises `DataError` for a broken file."""
        path = folder / JOB
        if not path.exists():
            return None
        require_regular(path, DataError)
        try:
            data = parse_sealed(path.read_bytes())
            if data.pop("format") != _FORMAT:
                raise ValueError("it is of another format")
            return record_from_plain(JobRecord, data)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError(
                f"`{path}` cannot be used", why=str(error), fix="remove it, and give --target and --budget again"
            ) from error


class JobKeeper(Callback):
    """Writes the record when training begins: before any checkpoint, and never for a run that failed to begin."""

    def __init__(self, record: JobRecord, folder: Path) -> None:
        self._record = record
        self._folder = folder

    def on_train_begin(self, logs: Logs) -> None:
        self._record.write(self._folder)


def is_resumable(folder: Path) -> bool:
    return (folder / NEWEST).exists() or (folder / PREVIOUS).exists()


def is_free(folder: Path) -> bool:
    """Whether a new run may use the folder: nothing there took anybody time to train, or is not ours to replace."""
    return not (_is_a_run(folder) or files_of_others(folder))


def _is_a_run(folder: Path) -> bool:
    return is_resumable(folder) or (folder / REPORT).exists()


def files_of_others(folder: Path) -> tuple[str, ...]:
    """Names of a run's files that are there, in a folder that no run began in."""
    if has_our_recipe(folder):
        return ()
    run = RunFolder(folder)
    ours = (run.model, run.recipe, run.reading, run.data, run.schedules, run.sessions, run.adapters, run.page)
    names = (*(path.name for path in ours), PLOT, LOG, EPOCHS, LEARNED, JOB, BEST, LIVE, REQUEST)
    return tuple(name for name in names if (folder / name).exists())


def has_our_recipe(folder: Path) -> bool:
    """Whether a run of edgetrain, of any version, began in the folder."""
    recipe = RunFolder(folder).recipe
    if irregular_kind(recipe):
        return False
    try:
        return str(parse_json(recipe.read_bytes())["format"]).startswith(_RECIPE_FORMAT)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def numbered_folders(name: str, runs: Path = RUNS) -> Iterator[Path]:
    """`runs/<name>`, `runs/<name>-2`, ... without an end."""
    yield runs / name
    yield from (runs / f"{name}-{number}" for number in itertools.count(2))


def require_free(folder: Path, recipe: str) -> None:
    """Raises `UsageError` where a new run would overwrite another one."""
    if is_free(folder):
        return
    if not _is_a_run(folder):
        raise UsageError(
            f"`{folder}` holds `{files_of_others(folder)[0]}`, which no run of edgetrain wrote",
            why="a run there would replace it",
            fix="choose another folder with --out",
        )
    finished = (folder / REPORT).exists()
    go_on = f"edgetrain fit {recipe} --resume --out {shlex.quote(str(folder))}"
    raise UsageError(
        f"`{folder}` holds a run that {'has finished' if finished else 'can be resumed'}",
        why="a new run there would overwrite it",
        fix="choose another folder with --out" + ("" if finished else f", or go on with `{go_on}`"),
    )


def newest_resumable(name: str | None, runs: Path = RUNS) -> Path:
    """The folder of the run that saved last: of recipe `name` (`<name>`, `<name>-2`, ...), or of any without one.

    Raises `UsageError` when there is none.
    """
    found = [f for f in sorted(runs.glob("*")) if is_resumable(f) and (name is None or _is_numbered(f.name, name))]
    if not found:
        raise UsageError(
            f"there is no run{f' of `{name}`' if name else ''} to resume in `{runs}`",
            why="no folder there holds a checkpoint",
            fix="name the run's folder with --out DIR, or start a new run without --resume",
        )
    return max(found, key=_saved_at)


def _is_numbered(folder: str, name: str) -> bool:
    return folder == name or (folder.startswith(f"{name}-") and folder.removeprefix(f"{name}-").isdigit())


def _saved_at(folder: Path) -> int:
    return max(path.stat().st_mtime_ns for path in (folder / NEWEST, folder / PREVIOUS) if path.exists())
