"""Bits that change in files of a run: every reader has to notice, and to say so in words of ours."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.campaigns.ground import Ground, Result
from edgetrain.errors import DataError
from edgetrain.run.files.checkpoint import NEWEST, read_header
from edgetrain.run.files.folders import JobRecord
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.files.trained import read_recipe

_PREFIX_BYTES = 16  # of a checkpoint: magic and length
_RANDOM_FLIPS, _CUTS = 200, 21

Damaged = Iterator[tuple[str, bytes]]


def checkpoint_bits(ground: Ground) -> Result:
    """Every bit of the header, bits anywhere, and files that end early."""
    rng = ground.rng("checkpoint bits")
    folder = ground.new_folder("checkpoint")
    path = Path(shutil.copy(ground.finished_run / NEWEST, folder))
    whole = path.read_bytes()
    header = _PREFIX_BYTES + int.from_bytes(whole[8:_PREFIX_BYTES], "little")
    of_header = range(0, 8 * header, 4 if ground.quick else 1)
    bits = [*of_header, *(rng.randrange(8 * len(whole)) for _ in range(_RANDOM_FLIPS))]
    flipped = ((f"bit {bit}", _with_flipped(whole, bit)) for bit in bits)
    cuts = ((f"cut at {cut}", whole[:cut]) for cut in _cuts(rng, len(whole)))
    found = _undetected(path, itertools.chain(flipped, cuts), lambda: read_header(path))
    detail = f"{len(of_header):,} bits of the header, {_RANDOM_FLIPS} anywhere, {_CUTS} truncations"
    return Result(tries=len(bits) + _CUTS, wrong=tuple(found), detail=detail)


def run_file_bits(ground: Ground) -> Result:
    """Every bit of `recipe.json` and `job.json`."""
    folder = ground.new_folder("run-files")
    readers: dict[str, Callable[[], object]] = {
        "recipe.json": lambda: read_recipe(RunFolder(folder)),
        "job.json": lambda: JobRecord.read(folder),
    }
    tries, found, said = 0, [], []
    for name, read in readers.items():
        path = Path(shutil.copy(ground.finished_run / name, folder))
        whole = path.read_bytes()
        bits = range(0, 8 * len(whole), 8 if ground.quick else 1)
        found += _undetected(path, ((f"{name}, bit {bit}", _with_flipped(whole, bit)) for bit in bits), read)
        path.write_bytes(whole)
        tries += len(bits)
        said.append(f"{len(bits):,} bits of `{name}`")
    return Result(tries=tries, wrong=tuple(found), detail=", ".join(said))


def _undetected(path: Path, damaged: Damaged, read: Callable[[], object]) -> list[str]:
    found = []
    for name, content in damaged:
        path.write_bytes(content)
        try:
            read()
        except DataError:
            continue
        except Exception as error:
            found.append(f"{name}: {type(error).__name__}: {error}")
        else:
            found.append(f"{name} was not noticed")
    return found


def _with_flipped(whole: bytes, bit: int) -> bytes:
    changed = bytearray(whole)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def _cuts(rng: random.Random, length: int) -> list[int]:
    return [0, 1, 8, 15, 16, length - 32, length - 1, *(rng.randrange(length) for _ in range(_CUTS - 7))]
