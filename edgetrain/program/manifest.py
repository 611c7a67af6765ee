"""The manifest of a compiled program: its contents, and its text form, which is read with suspicion."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgetrain.errors import DataError
from edgetrain.files.texts import parse_json
from edgetrain.graph.ir import DTYPE_BYTES, Role

FORMAT = "edgetrain.program/1"

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")  # below the folder, not a way out of it


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRecord:
    """Where a persistent tensor lies, and how to read it: in the arena, or in a slot of the page file.

    `file_offset` is its place in `parameters.bin` and in checkpoints, where that is not its offset in the arena.
    """

    offset: int | None  # None for a stored tensor
    shape: tuple[int, ...]
    dtype: str
    role: Role
    slot: int | None = None
    file_offset: int | None = None

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]

    @property
    def place_in_file(self) -> slice:
        """The bytes of `parameters.bin`, or of a checkpoint's payload, that are this tensor."""
        return slice(self.start_in_file, self.start_in_file + self.nbytes)

    @property
    def start_in_file(self) -> int:
        start = self.file_offset if self.file_offset is not None else self.offset
        assert start is not None  # checked when a manifest is read
        return start


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
    encrypts_pages: bool = False  # what the program pages is encrypted, with a key that ends with the process
    gpu_api: str = ""  # through which a GPU runs the kernels, and has the arena; empty: the processor does

    @property
    def stores_tensors(self) -> bool:
        """Whether parameters or state live in the page file between calls."""
        return any(tensor.slot is not None for tensor in self.tensors.values())


def manifest_to_json(manifest: Manifest) -> str:
    """Canonical text: the same manifest gives the same bytes."""
    data = {
        "format": FORMAT,
        "target": {
            "name": manifest.target_name,
            "triple": manifest.triple,
            "cpu": manifest.cpu,
            **({"gpu": manifest.gpu_api} if manifest.gpu_api else {}),
        },
        "versions": dict(manifest.versions),
        "library": manifest.library,
        "functions": list(manifest.functions),
        "planned_peak_bytes": manifest.planned_peak_bytes,
        "arena_bytes": manifest.arena_bytes,
        "persistent_bytes": manifest.persistent_bytes,
        "saved_bytes": manifest.saved_bytes,
        "parameters_bytes": manifest.parameters_bytes,
        "page_file_bytes": manifest.page_file_bytes,
        **({"encrypts_pages": True} if manifest.encrypts_pages else {}),
        "planned_seconds": manifest.planned_seconds,
        "planned_joules": manifest.planned_joules,
        "tensors": {
            name: {
                "offset": t.offset,
                "shape": list(t.shape),
                "dtype": t.dtype,
                "role": str(t.role),
                **({} if t.slot is None else {"slot": t.slot}),
                **({} if t.file_offset is None else {"file_offset": t.file_offset}),
            }
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
        data = parse_json(text)
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
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
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
        encrypts_pages=data.get("encrypts_pages", False) is True,
        gpu_api=str(data["target"].get("gpu", "")),
        **counts,
    )


def _read_tensor(data: Mapping[str, Any]) -> TensorRecord:
    dtype = str(data["dtype"])
    if dtype not in DTYPE_BYTES:
        raise ValueError(f"unknown dtype `{dtype}`")
    shape = tuple(_count(n) for n in data["shape"])
    return TensorRecord(
        offset=_count_or_none(data["offset"]),
        shape=shape,
        dtype=dtype,
        role=Role(data["role"]),
        slot=_count_or_none(data.get("slot")),
        file_offset=_count_or_none(data.get("file_offset")),
    )


def _count_or_none(value: object) -> int | None:
    return None if value is None else _count(value)


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _contradiction(manifest: Manifest) -> str:
    """The first thing in a manifest that cannot be, or nothing."""
    sizes = (manifest.saved_bytes, manifest.parameters_bytes, manifest.persistent_bytes, manifest.arena_bytes)
    # Where tensors are stored, files and arena have layouts of their own.
    ordered = (sizes[:2], sizes[2:]) if manifest.stores_tensors else (sizes,)
    if any(list(part) != sorted(part) for part in ordered):
        return f"saved, parameters, persistent and arena bytes are not in this order: {sizes}"
    for name, tensor in manifest.tensors.items():
        if (tensor.offset is None) == (tensor.slot is None):
            return f"tensor `{name}` is neither in the arena nor in storage, or in both"
        if tensor.offset is None and tensor.file_offset is None:
            return f"the stored tensor `{name}` has no place in parameters.bin"
        if tensor.offset is not None and tensor.offset + tensor.nbytes > manifest.persistent_bytes:
            return f"tensor `{name}` ends outside the persistent part of the arena"
        if tensor.file_offset is not None and tensor.file_offset + tensor.nbytes > manifest.parameters_bytes:
            return f"tensor `{name}` ends outside parameters.bin"
    for name, sha256 in manifest.files.items():
        if not _FILE_NAME.match(name) or not _SHA256.match(sha256):
            return f"`{name}` is not a file name with its SHA-256"
    for name in (manifest.library, "parameters.bin", "graph.json"):
        if name not in manifest.files:
            return f"`{name}` is not among its files"
    return ""


def _broken(where: str, why: str) -> DataError:
    return DataError(f"{where} is broken", why=why, fix="build or copy the program again")
