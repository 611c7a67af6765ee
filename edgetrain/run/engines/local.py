"""Runs a compiled program on this machine: one arena, one library, and nothing copied between them.

A program can be exchanged for another one of the same graph: parameters, state and inputs stay where they are, and so
do the views of them.
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

from edgetrain.dataset.bounds import first_outside, outside
from edgetrain.errors import DeviceError, EdgetrainError, InternalError
from edgetrain.graph.ir import Op
from edgetrain.graph.persistent import align
from edgetrain.program.artifact import GRAPH, Artifact
from edgetrain.program.emit_c import ABI
from edgetrain.run.engines.arena_memory import ArenaMemory
from edgetrain.run.engines.stored_parameters import Bounce, ParametersCopy, copy_by_pieces, mapped_file
from edgetrain.targets.opencl import INSTALL
from edgetrain.units import show_bytes

_READ_BYTES = 1 << 20
_ERROR_DATA = -7  # EDGE_ERROR_DATA in runtime/edgetrain.h
# Others that the user can do something about.
_FIXES: Mapping[int, str] = {
    -2: "close the other engine of this program first: one can be open in a process",
    -3: "pass fewer threads, or raise the limit on processes (`ulimit -u`)",
    -4: "pass a page directory that exists and can be written to",
    -5: "free space in the page directory, or choose another one",
    -6: "check the disk under the page directory",
    -8: "check the disk under the page directory, and who else can write to it; then go on with --resume",
    -9: INSTALL,
    -10: "leave more of the device's memory free, or compile with a smaller --budget",
    -11: "check that the device's driver works; then go on with --resume",
}


class _Facts(ctypes.Structure):
    """`edge_program_facts` in runtime/internal.h."""

    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("abi", "arena_bytes", "persistent_bytes", "saved_bytes", "page_file_bytes")
    )


class LocalEngine:
    """An open program. Use it in a `with` statement, from one thread.

    Arrays from `tensor` and `saved` are views of the arena: they change with every call. They stay readable after
    `close`, which stops the program's threads and forgets its page file; the memory goes with the last view.

    The kernels of a program for a GPU run on the device's arena; each call copies what it reads there, and back what it
    wrote.

    Where a program leaves parameters in storage, views of what a checkpoint holds are of a copy: ask for them again
    after a call. What is written to them reaches the program before its next call.
    """

    def __init__(self, artifact: Artifact, *, threads: int, page_directory: Path, reserve_bytes: int = 0) -> None:
        """Maps the arena, fills in the initial parameters and opens the library. Raises `DeviceError`.

        `reserve_bytes` is the largest arena that `switch` may be asked for.
        """
        self._artifact = artifact
        self._threads = threads
        self._page_directory = page_directory
        self._given_back_peak_bytes = 0  # what was in use before temporaries went back to the system
        self._memory = ArenaMemory(artifact.manifest.arena_bytes, reserve_bytes=reserve_bytes)
        self._copy = _copy_for(artifact, page_directory)
        self._read_parameters()
        self._library: ctypes.CDLL | None = self._load_and_open(artifact)
        self._entries = _entries_of(self._library, artifact)

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
        if self._copy is not None and name in self._copy:
            self._fetched(self._copy).release()  # what was shown before may leave the memory
            return self._copy.tensor(name)
        assert record.offset is not None  # else it would be in the copy
        part = self._memory.view[record.offset : record.offset + record.nbytes]
        return np.frombuffer(part, dtype=record.dtype).reshape(record.shape)

    @property
    def saved(self) -> memoryview:
        """Parameters and optimizer state: what a checkpoint holds. Who goes through it calls `release` on the way."""
        memory = self._memory.view if self._copy is None else self._fetched(self._copy).memory
        return memory[: self._artifact.manifest.saved_bytes]

    def release(self) -> None:
        """Gives back the memory of views of a copy; where views are of the arena there is nothing to give back."""
        if self._copy is not None:
            self._copy.release()

    def call(self, function: str) -> None:
        """Runs `step`, `evaluate` or `apply` on what is in the arena.

        Raises `DeviceError` naming the op whose kernel failed, or what paging failed on; then the parameters are as
        the ops before it left them, and the last checkpoint has to be loaded. Raises `DataError` for labels or ids
        that are out of bounds; then nothing was run.
        """
        if self._library is None:
            raise InternalError(f"`{function}` was called after `close`")
        if function not in self._artifact.manifest.functions:
            raise InternalError(f"the program has no function `{function}`")
        if self._copy is not None and self._copy.is_current:
            self._without_temporaries()
            self._copy.put_back(self._memory.view, self._move("edge_stored_write"), self._bounce())
        status = self._entries[function]()
        if status != 0:
            if status > 0:
                raise _kernel_failure(function, self._artifact.graph.functions[function][status - 1])
            if status == _ERROR_DATA:
                raise self._outside(function)
            raise _runtime_failure(self._library, f"`{function}` failed", status)

    def _outside(self, function: str) -> EdgetrainError:
        """Names the first row of the batch that the program refused."""
        for tensor in self._artifact.graph.bounded_inputs(function):
            values = self.tensor(tensor.name)
            found = first_outside(values, tensor.bounds) if tensor.bounds is not None else None
            if found is not None and tensor.bounds is not None:
                where = f"row {found[0] if found else 0} of the batch"
                return outside(where, f"`{tensor.name}`", values, found, tensor.bounds)
        return InternalError(f"`{function}` refused inputs that are in their bounds")

    @property
    def artifact(self) -> Artifact:
        """The program that runs now."""
        return self._artifact

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

    def switch(self, artifact: Artifact) -> None:
        """Goes on with another plan of the same graph; the memory that it does not need goes back to the system.

        Only between calls. Parameters and state stay, bit for bit; inputs and outputs do where both programs keep
        everything in memory, and so do views: ask for them again otherwise.
        Raises `DeviceError` when the other program is of another graph or cannot be opened; then nothing has changed.
        """
        if self._library is None:
            raise InternalError("`switch` was called after `close`")
        if artifact.directory == self._artifact.directory:
            return
        _require_same_graph(self._artifact, artifact)
        carried = None if _keep_the_same_places(self._artifact, artifact) else self._carried()
        before, after = self._artifact.manifest.arena_bytes, artifact.manifest.arena_bytes
        self._memory.resize(max(before, after))
        try:
            copy = _copy_for(artifact, self._page_directory)
            opened = self._load_and_open(artifact)
        except BaseException:
            self._memory.resize(before)
            raise
        self.close()
        self._artifact, self._library, self._copy = artifact, opened, copy
        self._entries = _entries_of(opened, artifact)
        self._memory.resize(after)
        self._given_back_peak_bytes = 0
        self._memory.give_back(artifact.manifest.persistent_bytes if carried is None else 0)
        if carried is not None:
            self._put_down(carried)

    def _carried(self) -> mmap.mmap:
        """Parameters, state and constants as in `parameters.bin`, in a mapped file, which takes no memory."""
        if self._copy is not None:
            return self._fetched(self._copy).mapping
        nbytes = self._artifact.manifest.parameters_bytes
        carried = mapped_file(self._page_directory, nbytes)
        copy_by_pieces(memoryview(carried), self._memory.view[:nbytes], carried)
        return carried

    def _put_down(self, carried: mmap.mmap) -> None:
        nbytes = self._artifact.manifest.parameters_bytes
        target = (self._memory.view if self._copy is None else self._copy.memory)[:nbytes]
        copy_by_pieces(target, memoryview(carried)[:nbytes], carried)
        if self._copy is not None:
            self._copy.is_current = True

    def throttle_paging(self, bytes_per_second: int) -> None:
        """Limits page traffic, to see on a fast disk what a slow one would do. 0 is no limit."""
        if self._library is None:
            raise InternalError("`throttle_paging` was called after `close`")
        self._library.edge_page_throttle(ctypes.c_uint64(bytes_per_second))

    def measured_peak_bytes(self) -> int:
        """Bytes of the arena that were touched since the program began to run, as the kernel counts them.

        Of a GPU's memory the program takes its arena whole, as one buffer.

        What is resident (or swapped out) now is the peak, for nothing is given back but by `switch`, and by a program
        that stores parameters, which remembers how much it was. Raises `DeviceError` where the system does not say.
        """
        if self._artifact.manifest.gpu_api:
            return self._artifact.manifest.arena_bytes
        return max(self._given_back_peak_bytes, self._memory.bytes_in_use())

    def given_back_bytes(self) -> int:
        """How much less of the arena is in use now than at the peak."""
        return self.measured_peak_bytes() - self._memory.bytes_in_use()

    def close(self) -> None:
        """Stops the program's threads and unloads it. May be called twice."""
        if self._library is not None:
            self._library.edge_close()
            _unload(self._library)
            self._library = None

    def _fetched(self, copy: ParametersCopy) -> ParametersCopy:
        if not copy.is_current:
            self._without_temporaries()
            copy.fetch(self._memory.view, self._move("edge_stored_read"), self._bounce())
            self._memory.give_back(self._artifact.manifest.persistent_bytes)  # who looks at a tensor has room for it
        return copy

    def _without_temporaries(self) -> None:
        """Between calls temporaries hold nothing: tensors of the copy may take their memory."""
        self._given_back_peak_bytes = self.measured_peak_bytes()
        self._memory.give_back(self._artifact.manifest.persistent_bytes)

    def _bounce(self) -> Bounce:
        """The temporaries, which hold nothing between calls: a stored tensor has a place there while it is used."""
        start = align(self._artifact.manifest.persistent_bytes, mmap.PAGESIZE)
        return Bounce(memory=self._memory.view[start:], address=self._memory.address + start)

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

    def _load_and_open(self, artifact: Artifact) -> ctypes.CDLL:
        library = _load_library(artifact)
        try:
            self._open(library, artifact)
        except BaseException:
            _unload(library)
            raise
        return library

    def _open(self, library: ctypes.CDLL, artifact: Artifact) -> None:
        facts = _Facts.in_dll(library, "edge_program")
        arena_bytes = artifact.manifest.arena_bytes
        if facts.abi != ABI or facts.arena_bytes != arena_bytes:
            raise DeviceError(
                f"{artifact.library} does not belong to its manifest",
                why=f"it has ABI {facts.abi} and an arena of {show_bytes(facts.arena_bytes)}",
                fix="build the program again",
            )
        library.edge_open.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32, ctypes.c_char_p)
        library.edge_error.restype = ctypes.c_char_p
        library.edge_close.restype = None
        status = library.edge_open(self._memory.address, arena_bytes, self._threads, bytes(self._page_directory))
        if status != 0:
            raise _runtime_failure(library, "the program could not be opened", status)

    def _read_parameters(self) -> None:
        path, count = self._artifact.parameters, self._artifact.manifest.parameters_bytes
        memory = self._memory.view if self._copy is None else self._copy.memory
        done = 0
        try:
            with path.open("rb", buffering=0) as stream:
                while done < count:
                    got = stream.readinto(memory[done : min(count, done + _READ_BYTES)])
                    if not got:
                        break
                    done += got
                    self.release()
        except OSError as error:
            raise DeviceError(f"{path} cannot be read", why=str(error), fix="build the program again") from error
        if done != count:
            raise DeviceError(
                f"{path} holds {done} of {count} bytes", why="it was cut short", fix="build the program again"
            )
        if self._copy is not None:
            self._copy.is_current = True


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


def _copy_for(artifact: Artifact, directory: Path) -> ParametersCopy | None:
    """The copy that a program needs which stores parameters. Raises `DeviceError` where it would show secrets."""
    if not artifact.manifest.stores_tensors:
        return None
    if artifact.manifest.encrypts_pages:
        raise DeviceError(
            "a program with encrypted pages cannot leave parameters in storage",
            why="this host reads and writes them through a file that is not encrypted",
            fix="plan with a larger budget, or without `security.key`",
        )
    return ParametersCopy(artifact.manifest, directory)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _entries_of(library: ctypes.CDLL, artifact: Artifact) -> Mapping[str, Callable[[], int]]:
    """Once: every look-up in a library makes an object that only the garbage collector frees."""
    return {name: library[f"edge_{name}"] for name in artifact.manifest.functions}


def _unload(library: ctypes.CDLL) -> None:
    """Without this the loader would answer the next load of the same path with these very pages, even if a new build
    has replaced the file."""
    _libc().dlclose(ctypes.c_void_p(library._handle))


def _require_same_graph(running: Artifact, other: Artifact) -> None:
    if running.manifest.files[GRAPH] != other.manifest.files[GRAPH]:
        raise DeviceError(
            f"{other.directory} is a program of another graph",
            why="its parameters are not those of the program that runs",
            fix="plan and build it from the graph of the run",
        )


def _keep_the_same_places(running: Artifact, other: Artifact) -> bool:
    """Whether what one step hands to the next lies in the same bytes of the arena in both programs."""
    one, two = running.manifest, other.manifest
    stored = one.stores_tensors or two.stores_tensors  # each program has a page file of its own
    return not stored and (one.tensors, one.persistent_bytes) == (two.tensors, two.persistent_bytes)


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
