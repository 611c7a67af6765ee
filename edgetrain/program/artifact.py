"""The folder a program is shipped as: library, driver, graph, initial parameters, and a manifest that vouches for them.

    manifest.json            what this is: hashes, target, sizes, and where each persistent tensor lies
    libedgetrain_model.so    kernels, driver and runtime (`.a` on bare metal)
    driver.c                 the generated driver, to read
    kernels.cl               what a GPU compiles, to read: the library holds it
    edgetrain.h, edgetrain_model.h   the C interface and this program's numbers
    graph.json, plan.json    what was compiled
    parameters.bin           parameters, state, constants: the first bytes of the arena, unless the plan stores some

The folder holds no time, no path and no name of the machine that made it.
"""

from __future__ import annotations

import logging
import os
import types
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgetrain.errors import DataError, InternalError
from edgetrain.files.atomic_file import disk_errors
from edgetrain.files.atomic_folder import scratch_directory
from edgetrain.files.build_cache import cache_key, file_sha256
from edgetrain.files.private import make_tree_private
from edgetrain.files.regular_file import require_regular_files
from edgetrain.graph.ir import Tensor, TrainGraph
from edgetrain.graph.ir import from_json as graph_from_json
from edgetrain.graph.ir import to_json as graph_to_json
from edgetrain.graph.persistent import SHIPPED_ROLES
from edgetrain.planner.plan import Plan
from edgetrain.program.emit_c import emit_header, page_file_bytes, page_slots
from edgetrain.program.layout import arena_layout, file_offsets
from edgetrain.program.manifest import Manifest, TensorRecord, manifest_from_json, manifest_to_json
from edgetrain.program.replace_folder import MANIFEST, put_in_place, require_replaceable
from edgetrain.runtime.sources import runtime_text
from edgetrain.targets.device import Codegen, Gpu
from edgetrain_tuner import disk

log = logging.getLogger(__name__)

PARAMETERS = "parameters.bin"
GRAPH = "graph.json"
PLAN = "plan.json"
DRIVER = "driver.c"
DEVICE_SOURCE = "kernels.cl"


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A folder whose every file has been checked against its manifest."""

    directory: Path
    manifest: Manifest

    @property
    def library(self) -> Path:
        return self.directory / self.manifest.library

    @property
    def parameters(self) -> Path:
        return self.directory / PARAMETERS

    @cached_property
    def graph(self) -> TrainGraph:
        """Raises `DataError` for a file that is no graph, whatever hash the manifest has of it."""
        path = self.directory / GRAPH
        try:
            return graph_from_json(path.read_text(encoding="utf-8"))
        except (InternalError, OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path} cannot be used", why=str(error), fix="build or copy the program again") from error

    @cached_property
    def identity(self) -> str:
        """A hash of everything the folder holds: equal for two builds of the same inputs."""
        return cache_key(manifest_to_json(self.manifest))

    def copy_to(
        self,
        directory: Path,
        *,
        saved: bytes | bytearray | None = None,
        beside: Mapping[str, str] = types.MappingProxyType({}),
        keeps_changed: bool = False,
        is_shared: bool = False,
    ) -> None:
        """Copies the folder, replacing an older artifact: see `put_in_place`.

        With `saved`, it starts from those parameters. `beside` are more text files, by name; the manifest vouches for
        them too. Only its owner may read the copy, unless it `is_shared`: then the umask decides. Raises `UsageError`
        as `put_in_place` does, `InternalError` when `saved` is not of the program's size, `DeviceError` when the disk
        refuses.
        """
        directory = directory.resolve() if directory.is_symlink() else directory  # a link to a folder stays one
        require_replaceable(directory)
        with disk_errors(directory), scratch_directory(directory) as scratch:
            copied = scratch / "artifact"
            disk.copy_tree(self.directory, copied)  # without modes, which are those of this copy
            if saved is not None or beside:
                self._complete(copied, saved, beside)
            if not is_shared:
                make_tree_private(copied)
            put_in_place(copied, directory, keeps_changed=keeps_changed)

    def _complete(self, copied: Path, saved: bytes | bytearray | None, beside: Mapping[str, str]) -> None:
        files = dict(self.manifest.files)
        if saved is not None:
            if len(saved) != self.manifest.saved_bytes:
                raise InternalError(f"{len(saved)} saved bytes are not the program's {self.manifest.saved_bytes}")
            with disk.stream(disk.open_file(copied / PARAMETERS, os.O_RDWR), "r+b") as stream:
                stream.write(saved)
            files[PARAMETERS] = file_sha256(copied / PARAMETERS)
        for name, text in beside.items():
            disk.write_file(copied / name, text.encode())
            files[name] = file_sha256(copied / name)
        manifest = replace(self.manifest, files=dict(sorted(files.items())))
        disk.write_file(copied / MANIFEST, manifest_to_json(manifest).encode())


def write_artifact(
    directory: Path,
    *,
    graph: TrainGraph,
    plan: Plan,
    library: Path,
    driver_c: str,
    device_source: str | None = None,
    parameters: Mapping[str, npt.NDArray[np.generic]],
    target_name: str,
    codegen: Codegen,
    gpu: Gpu | None = None,
    versions: Mapping[str, str],
    plan_json: str | None = None,
    encrypts_pages: bool = False,
) -> Artifact:
    """Writes the folder in one piece, replacing an older artifact at the same place.

    `target_name`, `codegen` and `gpu` say what it was built for; `versions` names what built it (`tvm`, `compiler`).
    `device_source` is what the GPU compiles.
    `encrypts_pages` says that the library does.
    `parameters` holds a value for every parameter, state and constant of `graph`, and nothing else. Raises
    `InternalError` for values that do not match the graph, and `UsageError` when `directory` holds something that is
    not an artifact.
    """
    require_replaceable(directory)  # before anything is built
    with scratch_directory(directory) as scratch:
        built = scratch / "artifact"
        disk.make_folder(built)
        disk.copy_file(library, built / library.name)
        texts = {
            DRIVER: driver_c,
            GRAPH: graph_to_json(graph),
            "edgetrain_model.h": emit_header(graph, plan),
            "edgetrain.h": runtime_text("edgetrain.h"),
        }
        if plan_json is not None:
            texts[PLAN] = plan_json
        if device_source is not None:
            texts[DEVICE_SOURCE] = device_source
        for name, text in texts.items():
            disk.write_file(built / name, text.encode())
        _write_parameters(built / PARAMETERS, graph, plan, parameters)
        manifest = replace(
            _describe(built, graph, plan, library.name, target_name, codegen, versions),
            encrypts_pages=encrypts_pages,
            gpu_api="" if gpu is None else gpu.api,
        )
        disk.write_file(built / MANIFEST, manifest_to_json(manifest).encode())
        put_in_place(built, directory)
    log.info("wrote %s: arena %d bytes, %s", directory, manifest.arena_bytes, manifest.library)
    return Artifact(directory=directory, manifest=manifest)


def load_artifact(directory: Path) -> Artifact:
    """The artifact in `directory`, with every file checked.

    Raises `DataError` when it is not one, is of another format, or a file is missing or not what the manifest says.
    """
    path = directory / MANIFEST
    require_regular_files(directory, DataError)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{directory} is not a compiled program",
            why=f"{MANIFEST} cannot be read: {error}",
            fix="pass the folder that `edgetrain export RUN --program DIR` wrote, or `program` in a run folder",
        ) from error
    manifest = manifest_from_json(text, where=str(path))
    for name, sha256 in manifest.files.items():
        _check_file(directory / name, sha256)
    return Artifact(directory=directory, manifest=manifest)


def _check_file(path: Path, sha256: str) -> None:
    fix = "build or copy the program again"
    try:
        found = file_sha256(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read", why=str(error), fix=fix) from error
    if found != sha256:
        raise DataError(
            f"{path} is not the file this program was built with",
            why=f"its SHA-256 is {found[:12]}…, the manifest says {sha256[:12]}…",
            fix=fix,
        )


def _describe(
    built: Path,
    graph: TrainGraph,
    plan: Plan,
    library: str,
    target_name: str,
    codegen: Codegen,
    versions: Mapping[str, str],
) -> Manifest:
    layout = arena_layout(graph, plan)
    slots = page_slots(plan, graph)
    in_file = file_offsets(graph, plan) if plan.stored else {}
    tensors = {
        t.name: TensorRecord(
            offset=plan.persistent_offsets.get(t.name),
            shape=t.shape,
            dtype=t.dtype,
            role=t.role,
            slot=slots[t.name].number if t.name in plan.stored else None,
            file_offset=in_file.get(t.name) if t.role in SHIPPED_ROLES else None,
        )
        for t in graph.persistent
    }
    return Manifest(
        files={path.name: file_sha256(path) for path in sorted(built.iterdir())},
        library=library,
        target_name=target_name,
        triple=codegen.triple,
        cpu=codegen.cpu,
        versions=dict(sorted(versions.items())),
        planned_peak_bytes=plan.peak_bytes,
        arena_bytes=layout.arena_bytes,
        persistent_bytes=layout.persistent_bytes,
        saved_bytes=layout.saved_bytes,
        parameters_bytes=layout.shipped_bytes,
        page_file_bytes=page_file_bytes(slots),
        planned_seconds=plan.seconds,
        planned_joules=plan.joules,
        functions=tuple(graph.functions),
        tensors=tensors,
    )


def _write_parameters(
    path: Path, graph: TrainGraph, plan: Plan, parameters: Mapping[str, npt.NDArray[np.generic]]
) -> None:
    """Tensor by tensor, so that a model larger than memory's free half can still be written."""
    shipped = {t.name: t for t in graph.persistent if t.role in SHIPPED_ROLES}
    if parameters.keys() != shipped.keys():
        wrong = sorted(parameters.keys() ^ shipped.keys())
        raise InternalError(f"values and graph disagree about `{wrong[0]}` and {len(wrong) - 1} more tensors")
    offsets = file_offsets(graph, plan)
    with disk.stream(disk.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)) as stream:
        stream.truncate(arena_layout(graph, plan).shipped_bytes)
        for name, tensor in shipped.items():
            stream.seek(offsets[name])
            stream.write(_raw_bytes(tensor, parameters[name]))


def _raw_bytes(tensor: Tensor, value: npt.NDArray[np.generic]) -> bytes:
    if value.shape != tensor.shape or value.dtype != np.dtype(tensor.dtype):
        raise InternalError(
            f"the value of `{tensor.name}` is {value.dtype} {value.shape}, the graph says {tensor.dtype} {tensor.shape}"
        )
    little_endian = value.dtype.newbyteorder("<")  # every target is
    return np.ascontiguousarray(value, dtype=little_endian).tobytes()
