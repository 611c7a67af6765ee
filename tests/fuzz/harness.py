"""What every reader's harness is made of: the rule for what may come of an input, and files that hold one."""

from __future__ import annotations

import contextlib
import importlib
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from edgetrain.errors import EdgetrainError, InternalError

FOLDER = Path(__file__).resolve().parent
CORPUS, FOUND = FOLDER / "corpus", FOLDER / "found"

Change = Callable[[bytes], bytes]  # any bytes to slightly other ones: libFuzzer's own mutation


@dataclass(frozen=True, slots=True, kw_only=True)
class Harness:
    """A reader under test. `mutate` changes an input where other bytes would not get past a check sum."""

    name: str
    one_input: Callable[[bytes], None]
    mutate: Callable[[bytes, Random, Change], bytes] | None
    words: tuple[bytes, ...]  # what the format is made of: libFuzzer's dictionary

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The corpus, and what was found: each once made the reader fail."""
        folders = (CORPUS / self.name, FOUND / self.name)
        return tuple(path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir()))


def reader_names() -> tuple[str, ...]:
    """One for each file in `readers/`, sorted."""
    return tuple(sorted(path.stem for path in (FOLDER / "readers").glob("*.py")))


def harness_of(name: str) -> Harness:
    module = importlib.import_module(f"tests.fuzz.readers.{name}")
    return Harness(
        name=name,
        one_input=module.one_input,
        mutate=getattr(module, "mutate", None),
        words=tuple(getattr(module, "WORDS", ())),
    )


@contextlib.contextmanager
def documented(*others: type[Exception]) -> Iterator[None]:
    """Passes over the errors that users are told of, and over `others`. Everything else gets out: it is a finding.

    An `InternalError` is none of them: it says that the input has found a bug. Nor is an error that cannot be shown.
    """
    try:
        yield
    except InternalError:
        raise
    except EdgetrainError as error:
        _require_shown(error)
    except others:
        pass


def _require_shown(error: EdgetrainError) -> None:
    str(error).encode(errors="replace")
    json.dumps(error.to_json())
    assert error.what, "an error says what happened"
    assert error.exit_code in (2, 3, 4, 5, 6), f"exit code {error.exit_code} is for none of a reader's errors"


@contextlib.contextmanager
def file_of(data: bytes, name: str) -> Iterator[Path]:
    """The bytes as a file of that name, alone in its folder, while the context lasts."""
    with tempfile.TemporaryDirectory(prefix="edgetrain-fuzz-") as folder:
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        yield path
