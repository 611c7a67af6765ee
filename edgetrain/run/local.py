"""Runs a compiled program on this machine: one arena, one library, and nothing copied between them.

The arena is a mapping of its own between two inaccessible pages: an access outside it ends the process instead of
changing somebody's data, and its resident size is the program's memory, exactly.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from edgetrain.errors import DeviceError, InternalError
from edgetrain.graph.ir import Op
from edgetrain.program.artifact import Artifact
from edgetrain.program.emit_c import ABI
from edgetrain.program.image import loaded_bytes
from edgetrain.run.mirror import Mirror
from edgetrain.units import show_bytes

_SMAPS = Path("/proc/self/smaps")
_PROT_NONE = 0

# EDGE_ERROR_* in runtime/edgetrain.h that the user can do something about.
_FIXES: Mapping[int, str] = {
    -2: "close the other engine of this program first: one can be open in a process",
    -3: "pass fewer threads, or raise the limit on processes (`ulimit -u`)",
    -4: "pass a page directory that exists and can be written to",
    -5: "free space in the page directory, or choose another one",
    -6: "check the disk under the page directory",
}


# What a thread of the pool or the pager writes of its stack, with the system's own page for it.
_THREAD_BYTES = 16 * 1024


def planned_process_bytes(artifact: Artifact, threads: int) -> int:
    """What a process grows by when it opens the program and runs all of it: arena, code, variables, threads.

    Raises `DataError` when the library cannot be read.
    """
    manifest = artifact.manifest
    is_paging = manifest.page_file_bytes > 0
    started = threads - 1 + is_paging
    image_bytes = loaded_bytes(artifact.library, is_paging=is_paging)
    return manifest.planned_peak_bytes + image_bytes + started * _THREAD_BYTES


class _Facts(ctypes.Structure):
    """`edge_program_facts` in runtime/internal.h."""

    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("abi", "arena_bytes", "persistent_bytes", "saved_bytes", "page_file_bytes")
    )


class LocalEngine:
    """An open program. Use it in a `with` statement, from one thread.

    Arrays from `tensor` and `saved` are views of the arena: they change with every call. They stay readable after
    `close`, which stops the program's threads and forgets its page file; the memory goes with the last view.

    Where a program leaves parameters in storage, views of what a checkpoint holds are of a mirror: ask for them again
    after a call. What is written to them reaches the program before its next call.
    """

    def __init__(self, artifact: Artifact, *, threads: int, page_directory: Path) -> None:
        """Maps the arena, fills in the initial parameters and opens the library. Raises `DeviceError`."""
        self._artifact = artifact
        manifest = artifact.manifest
        self._mapping = _map_between_guards(manifest.arena_bytes)
        self._arena = memoryview(self._mapping)[mmap.PAGESIZE : mmap.PAGESIZE + manifest.arena_bytes]
        self._address = _address_of(self._mapping) + mmap.PAGESIZE
        self._mirror = Mirror(manifest, page_directory) if manifest.stores_tensors else None
        self._read_parameters()
        self._library: ctypes.CDLL | None = _load_library(artifact)
        try:
            self._open(self._library, threads, page_directory)
        except BaseException:
            self._unload()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def tensor(self, name: str) -> npt.NDArray[Any]:
        """The persistent tensor `name`, as a view. Raises `InternalError` for any other name."""
        record = self._artifact.manifest.tensors.get(name)
        if record is None:
            raise InternalError(f"the program has no persistent tensor `{name}`")
        if self._mirror is not None and name in self._mirror:
            return self._fetched(self._mirror).tensor(name)
        assert record.offset is not None  # else it would be in the mirror
        part = self._arena[record.offset : record.offset + record.nbytes]
        return np.frombuffer(part, dtype=record.dtype).reshape(record.shape)

    @property
    def saved(self) -> memoryview:
        """Parameters and optimizer state: what a checkpoint holds."""
        memory = self._arena if self._mirror is None else self._fetched(self._mirror).memory
        return memory[: self._artifact.manifest.saved_bytes]

    def call(self, function: str) -> None:
        """Runs `step`, `evaluate` or `apply` on what is in the arena.

        Raises `DeviceError` naming the op whose kernel failed, or what paging failed on; then the parameters are as
        the ops before it left them, and the last checkpoint has to be loaded.
        """
        if self._library is None:
            raise InternalError(f"`{function}` was called after `close`")
        if function not in self._artifact.manifest.functions:
            raise InternalError(f"the program has no function `{function}`")
        if self._mirror is not None and self._mirror.is_current:
            self._mirror.put_back(self._arena, self._move("edge_stored_write"))
        status = self._entries[function]()
        if status != 0:
            if status > 0:
                raise _kernel_failure(function, self._artifact.graph.functions[function][status - 1])
            raise _runtime_failure(self._library, f"`{function}` failed", status)

    def op_seconds(self, function: str) -> tuple[float, ...]:
        """Seconds of each op of the function since this was last asked, for a program that was built to be profiled.

        Raises `InternalError` for any other.
        """
        if self._library is None:
            raise InternalError("a profile was asked for after `close`")
        count = len(self._artifact.graph.functions[function])
        try:
            counted = (ctypes.c_double * count).in_dll(self._library, "edge_profile_seconds")
        except ValueError as error:
            raise InternalError("this program was not built to be profiled") from error
        seconds = tuple(counted)
        ctypes.memset(counted, 0, ctypes.sizeof(counted))
        return seconds

    def measured_peak_bytes(self) -> int:
        """Bytes of the arena that were ever touched, as the kernel counts them; whole pages, the last cut to the arena.

        Nothing is ever given back, so what is resident (or swapped out) now is the peak. Raises `DeviceError` where
        the system does not say.
        """
        return min(_mapped_bytes_in_use(self._address), self._artifact.manifest.arena_bytes)

    def close(self) -> None:
        """Stops the program's threads and unloads it. May be called twice."""
        if self._library is not None:
            self._library.edge_close()
            self._unload()

    def _fetched(self, mirror: Mirror) -> Mirror:
        if not mirror.is_current:
            mirror.fetch(self._arena, self._move("edge_stored_read"))
        return mirror

    def _move(self, symbol: str) -> Callable[[int, int], None]:
        """`edge_stored_read` or `edge_stored_write`, which raises."""
        if self._library is None:
            raise InternalError("parameters in storage were asked for after `close`")
        library = self._library
        function = library[symbol]
        function.argtypes = (ctypes.c_uint32, ctypes.c_void_p)

        def move(slot: int, address: int) -> None:
            status = function(slot, address)
            if status != 0:
                raise _runtime_failure(library, "parameters in storage could not be moved", status)

        return move

    def _open(self, library: ctypes.CDLL, threads: int, page_directory: Path) -> None:
        facts = _Facts.in_dll(library, "edge_program")
        if facts.abi != ABI or facts.arena_bytes != self._artifact.manifest.arena_bytes:
            raise DeviceError(
                f"{self._artifact.library} does not belong to its manifest",
                why=f"it has ABI {facts.abi} and an arena of {show_bytes(facts.arena_bytes)}",
                fix="build the program again",
            )
        library.edge_open.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32, ctypes.c_char_p)
        library.edge_error.restype = ctypes.c_char_p
        library.edge_close.restype = None
        arena_bytes = self._artifact.manifest.arena_bytes
        status = library.edge_open(self._address, arena_bytes, threads, bytes(page_directory))
        if status != 0:
            raise _runtime_failure(library, "the program could not be opened", status)
        # Once: every look-up in a library makes an object that only the garbage collector frees.
        self._entries = {name: library[f"edge_{name}"] for name in self._artifact.manifest.functions}

    def _unload(self) -> None:
        # Without this the loader would answer the next load of the same path with these very pages, even if a new
        # build has replaced the file.
        if self._library is not None:
            _libc().dlclose(ctypes.c_void_p(self._library._handle))
        self._library = None

    def _read_parameters(self) -> None:
        path, count = self._artifact.parameters, self._artifact.manifest.parameters_bytes
        memory = self._arena if self._mirror is None else self._mirror.memory
        done = 0
        try:
            with path.open("rb", buffering=0) as stream:
                while done < count:
                    got = stream.readinto(memory[done:count])
                    if not got:
                        break
                    done += got
        except OSError as error:
            raise DeviceError(f"{path} cannot be read", why=str(error), fix="build the program again") from error
        if done != count:
            raise DeviceError(
                f"{path} holds {done} of {count} bytes", why="it was cut short", fix="build the program again"
            )
        if self._mirror is not None:
            self._mirror.is_current = True


def _kernel_failure(function: str, op: Op) -> DeviceError:
    source = f", made from {op.source}," if op.source else ""
    return DeviceError(
        f"`{function}` failed at op `{op.name}`",
        why=f"its kernel `{op.kernel}`{source} reported an error",
        fix="report this as a bug with the dumped program",
    )


def _runtime_failure(library: ctypes.CDLL, what: str, status: int) -> DeviceError:
    words = library.edge_error().decode(errors="replace")
    return DeviceError(what, why=f"{words} (code {status})", fix=_FIXES.get(status, ""))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _load_library(artifact: Artifact) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(artifact.library.resolve()), mode=ctypes.RTLD_LOCAL)
    except OSError as error:
        manifest = artifact.manifest
        raise DeviceError(
            f"{artifact.library} cannot be loaded on this machine",
            why=f"{error}; it was built for target `{manifest.target_name}` {manifest.triple}".rstrip(),
            fix="run it on that device, or compile for `--target host`",
        ) from error


def _map_between_guards(nbytes: int) -> mmap.mmap:
    """Zeroed private memory of at least `nbytes` in whole pages, with one inaccessible page before and one after.

    The page before also keeps the kernel from merging the mapping with a neighbour, which would spoil its count.
    """
    inner = -(-max(nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    try:
        mapping = mmap.mmap(-1, inner + 2 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise DeviceError(
            f"no memory for an arena of {show_bytes(nbytes)}",
            why=str(error),
            fix="free memory, raise the limit (`ulimit -v`), or compile with a smaller --budget",
        ) from error
    start = _address_of(mapping)
    for guard in (start, start + mmap.PAGESIZE + inner):
        if _libc().mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(mmap.PAGESIZE), _PROT_NONE) != 0:
            raise DeviceError("the arena's guard page could not be set", why=f"errno {ctypes.get_errno()}")
    return mapping


def _address_of(mapping: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))


def _mapped_bytes_in_use(start: int) -> int:
    """Resident plus swapped-out bytes of the mapping that begins at address `start`."""
    try:
        lines = _SMAPS.read_text().splitlines()
    except OSError as error:
        raise DeviceError("memory cannot be measured on this system", why=str(error)) from error
    # Header lines (`7f00-7f01 rw-p ...`) begin with an address, padded to eight digits; the mapping's fields follow.
    headers = (n for n, line in enumerate(lines) if line.lstrip("0").startswith(f"{start:x}-"))
    first = next(headers, None)
    if first is None:
        raise InternalError(f"the arena at {start:#x} is not among the mappings of this process")
    kibibytes = {"Rss:": 0, "Swap:": 0}
    for line in lines[first + 1 :]:
        name, *values = line.split()
        if not name.endswith(":"):
            break  # the next mapping
        if name in kibibytes:
            kibibytes[name] = int(values[0])
    return sum(kibibytes.values()) * 1024
