"""One object file for each kernel, cached by content: LLVM compiles a kernel once for a target and a schedule."""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgetrain._tvm import VERSION
from edgetrain.compiler import lower
from edgetrain.compiler.lower import compile_kernels
from edgetrain.errors import InternalError
from edgetrain.files.atomic_folder import scratch_directory
from edgetrain.files.build_cache import cache_key
from edgetrain.files.scratch import scratch_folder
from edgetrain.graph.extract import Kernel
from edgetrain.targets.device import Codegen
from edgetrain.toolchain.object_archive import Member, write_archive
from edgetrain_tuner import disk

log = logging.getLogger(__name__)

# Stands for a kernel's symbol in a kept object, and is as long as any: two models number their kernels differently.
_PLACEHOLDER = "edge_kernel_".ljust(104, "_")
_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A folder of objects by key. A damaged one counts as none."""

    folder: Path

    def get(self, key: str) -> bytes | None:
        try:
            data = self._place(key).read_bytes()
        except OSError:
            return None
        with contextlib.suppress(OSError):  # what was used longest ago goes first
            disk.touch(self._place(key))
        digest, content = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        return content if digest == hashlib.sha256(content).digest() else None

    def put(self, key: str, content: bytes) -> None:
        """Whole or not at all. A disk that is full costs time the next time, and nothing else."""
        place = self._place(key)
        try:
            with scratch_directory(place) as scratch:
                disk.write_file(scratch / place.name, hashlib.sha256(content).digest() + content)
                disk.rename(scratch / place.name, place)
        except OSError as error:
            log.info("the object %s is not kept: %s", key[:12], error)

    def _place(self, key: str) -> Path:
        return self.folder / key[:2] / key[2:]


def compile_archive(
    kernels: Sequence[Kernel],
    codegen: Codegen,
    out: Path,
    *,
    store: ObjectStore,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> int:
    """Writes an archive with an object for every kernel; returns how many LLVM had to compile.

    Raises `DeviceError` when LLVM does not know the target.
    """
    compiled = 0
    members = []
    pipeline = Path(lower.__file__).read_bytes()
    for count, kernel in enumerate(kernels, 1):
        neutral = replace(kernel, symbol=_PLACEHOLDER)
        key = cache_key(
            "edgetrain.object/1", str(kernel.function.script()), str(kernel.aliases), repr(codegen), VERSION, pipeline
        )
        content = store.get(key)
        if content is None:
            content = _compiled(neutral, codegen)
            store.put(key, content)
            compiled += 1
        members.append(Member(symbol=kernel.symbol, content=_named(content, kernel.symbol)))
        progress(count, len(kernels))
    write_archive(out, members)
    log.info("%d of %d kernels compiled for %s", compiled, len(kernels), codegen.triple or "this host")
    return compiled


def _compiled(kernel: Kernel, codegen: Codegen) -> bytes:
    with scratch_folder("object") as folder:
        path = Path(folder) / "kernel.o"
        compile_kernels([kernel], codegen, path)
        return path.read_bytes()


def _named(content: bytes, symbol: str) -> bytes:
    """The object with the kernel's own symbol. Names in an object end with a zero byte: what is left over is zeros."""
    placeholder, name = _PLACEHOLDER.encode(), symbol.encode()
    if len(name) > len(placeholder) or placeholder not in content:
        raise InternalError(f"the object of `{symbol}` cannot be named")
    return content.replace(placeholder, name.ljust(len(placeholder), b"\0"))
