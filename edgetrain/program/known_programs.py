"""Which programs this user's build cache has built: a run folder may come from anybody, and its program is code."""

from __future__ import annotations

import contextlib
import os

from edgetrain.files.build_cache import BuildCache
from edgetrain.files.private import make_private_folder
from edgetrain.program.artifact import Artifact
from edgetrain_tuner import disk

_FOLDER = "programs"  # beside the entries of the build cache, whose names are hexadecimal; stays when these are trimmed


def remember_program(cache: BuildCache, program: Artifact) -> None:
    """Notes that the program was built here. Where the cache cannot be written it is built again instead."""
    place = cache.root / _FOLDER / program.identity
    with contextlib.suppress(OSError):
        make_private_folder(place.parent)
        os.close(disk.open_file(place, os.O_WRONLY | os.O_CREAT, 0o600))


def is_known_program(cache: BuildCache, program: Artifact) -> bool:
    """Whether exactly these files, library, graph, plan and offsets, were built by this cache."""
    return (cache.root / _FOLDER / program.identity).is_file()
