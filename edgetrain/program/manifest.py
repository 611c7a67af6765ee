"""The manifest of a compiled program: its contents, and its text form, which is read with suspicion."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgetrain.errors import DataError
from edgetrain.graph.ir import DTYPE_BYTES, Role

FORMAT = "edgetrain.program/1"

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")  # below the folder, not a way out of it


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRecord:
    """Where a persistent tensor lies in the arena, and how to read it."""

    offset: int
    shape: tuple[int, ...]
    dtype: str
    role: Role

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything a host must know to run a program, apart from the files themselves."""

    files: Mapping[str, str]  # name -> SHA-256, the manifest itself excepted
    library: str
    target_name: str
    triple: str
    cpu: str
    versions: Mapping[str, str]
    planned_peak_bytes: int
    arena_bytes: int
    persistent_bytes: int
    saved_bytes: int
    parameters_bytes: int  # size of parameters.bin
    page_file_bytes: int
    planned_seconds: float
    planned_joules: float
    functions: tuple[str, ...]
    tensors: Mapping[str, TensorRecord]


def manifest_to_json(manifest: Manifest) -> str:
    """Canonical text: the same manifest gives the same bytes."""
    data = {
        "format": FORMAT,
        "target": {"name": manifest.target_name, "triple": manifest.triple, "cpu": manifest.cpu},
        "versions": dict(manifest.versions),
        "library": manifest.library,
        "functions": list(manifest.functions),
        "planned_peak_bytes": manifest.planned_peak_bytes,
        "arena_bytes": manifest.arena_bytes,
        "persistent_bytes": manifest.persistent_bytes,
        "saved_bytes": manifest.saved_bytes,
        "parameters_bytes": manifest.parameters_bytes,
        "page_file_bytes": manifest.page_file_bytes,
        "planned_seconds": manifest.planned_seconds,
        "planned_joules": manifest.planned_joules,
        "tensors": {
            name: {"offset": t.offset, "shape": list(t.shape), "dtype": t.dtype, "role": str(t.role)}
            for name, t in manifest.tensors.items()
        },
        "files": dict(manifest.files),
    }
    return json.dumps(data, indent=1) + "\n"


def manifest_from_json(text: str, *, where: str) -> Manifest:
    """The inverse of `manifest_to_json`.

    Raises `DataError` for another format and for a manifest that contradicts itself: its offsets become pointers.
    """
    try:
        data = json.loads(text)
        found = data["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise _broken(where, f"it has no `format`: {error}") from error
    if found != FORMAT:
        raise DataError(
            f"{where} has format `{found}`, this version of edgetrain reads `{FORMAT}`",
            why="the program was compiled by another version",
            fix="compile it again with this version, or run it with the one that made it",
        )
    try:
        manifest = _read(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _broken(where, f"{type(error).__name__}: {error}") from error
    problem = _contradiction(manifest)
    if problem:
        raise _broken(where, problem)
    return manifest


def _read(data: Mapping[str, Any]) -> Manifest:
    counts = {
        key: _count(data[key])
        for key in (
            "planned_peak_bytes",
            "arena_bytes",
            "persistent_bytes",
            "saved_bytes",
            "parameters_bytes",
            "page_file_bytes",
        )
    }
    return Manifest(
        files={str(k): str(v) for k, v in data["files"].items()},
        library=str(data["library"]),
        target_name=str(data["target"]["name"]),
        triple=str(data["target"]["triple"]),
        cpu=str(data["target"]["cpu"]),
        versions={str(k): str(v) for k, v in data["versions"].items()},
        planned_seconds=float(data["planned_seconds"]),
        planned_joules=float(data["planned_joules"]),
        functions=tuple(str(f) for f in data["functions"]),
        tensors={str(name): _read_tensor(t) for name, t in data["tensors"].items()},
        **counts,
    )


def _read_tensor(data: Mapping[str, Any]) -> TensorRecord:
    dtype = str(data["dtype"])
    if dtype not in DTYPE_BYTES:
        raise ValueError(f"unknown dtype `{dtype}`")
    shape = tuple(_count(n) for n in data["shape"])
    return TensorRecord(offset=_count(data["offset"]), shape=shape, dtype=dtype, role=Role(data["role"]))


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _contradiction(manifest: Manifest) -> str:
    """The first thing in a manifest that cannot be, or nothing."""
    sizes = (manifest.saved_bytes, manifest.parameters_bytes, manifest.persistent_bytes, manifest.arena_bytes)
    if list(sizes) != sorted(sizes):
        return f"saved, parameters, persistent and arena bytes are not in this order: {sizes}"
    for name, tensor in manifest.tensors.items():
        if tensor.offset + tensor.nbytes > manifest.persistent_bytes:
            return f"tensor `{name}` ends outside the persistent part of the arena"
    for name, sha256 in manifest.files.items():
        if not _FILE_NAME.match(name) or not _SHA256.match(sha256):
            return f"`{name}` is not a file name with its SHA-256"
    for name in (manifest.library, "parameters.bin", "graph.json"):
        if name not in manifest.files:
            return f"`{name}` is not among its files"
    return ""


def _broken(where: str, why: str) -> DataError:
    return DataError(f"{where} is broken", why=why, fix="build or copy the program again")
