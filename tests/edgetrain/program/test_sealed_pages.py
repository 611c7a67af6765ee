"""Encrypted pages: nothing of a tensor is in the file, and nothing but what was written last is read back."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from edgetrain.program.emit_c import PAGE_BLOCK_BYTES
from edgetrain.program.library import build_library
from edgetrain.toolchain.c_compiler import find_compiler, host_triple, parse_triple
from edgetrain.toolchain.zig_object import cipher_cpu
from tests.edgetrain.program.tiny_program import compile_object, host_compiler

ERROR_PAGE_DAMAGED = -8
SLOT_BYTES = (3 * PAGE_BLOCK_BYTES + 1000, PAGE_BLOCK_BYTES, 12, 3 * PAGE_BLOCK_BYTES + 1000)
OFFSETS = (0, 200_704, 266_240, 270_336)  # on pages
FILE_BYTES, ARENA_BYTES = 471_040, 1 << 20
DRIVER = """
#include "internal.h"
const edge_program_facts edge_program = {EDGE_ABI, ARENA, ARENA, 0, FILE};
const edge_page_slot edge_page_slots[] = {SLOTS};
const uint32_t edge_stored_tensors = 4;
edge_page_seal edge_page_seals[10];
const uint32_t edge_page_first_seals[] = {0, 4, 5, 6};
"""


def build(directory: Path, triple: str | None = None) -> Path:
    slots = ", ".join(f"{{{at}, {size}}}" for at, size in zip(OFFSETS, SLOT_BYTES, strict=True))
    driver = DRIVER.replace("ARENA", str(ARENA_BYTES)).replace("FILE", str(FILE_BYTES)).replace("SLOTS", slots)
    source = directory / "kernels.c"
    source.write_text("int kernels_of_nothing(void) { return 0; }\n")
    compiler = host_compiler() if triple is None else find_compiler(triple)
    kernels = compile_object(compiler, source, directory / "kernels.o")
    return build_library(driver_c=driver, kernels=kernels, out=directory, compiler=compiler, encrypts_pages=True)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(build(tmp_path_factory.mktemp("sealed"))))
    loaded.edge_open.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32, ctypes.c_char_p)
    loaded.edge_error.restype = ctypes.c_char_p
    loaded.edge_stored_read.argtypes = loaded.edge_stored_write.argtypes = (ctypes.c_uint32, ctypes.c_void_p)
    return loaded


class Program:
    """An open one, its page file, and its slots as bytes."""

    def __init__(self, library: ctypes.CDLL, arena: mmap.mmap, file: Path) -> None:
        self._library = library
        self._arena = arena
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(arena))
        self._file = file

    def write(self, slot: int, content: bytes, *, offset: int = 0) -> None:
        self._arena[offset : offset + len(content)] = content
        assert self._library.edge_stored_write(slot, self._address + offset) == 0

    def read(self, slot: int, *, offset: int = 0) -> bytes | int:
        """What the slot holds, or the status of a failure."""
        status = self._library.edge_stored_read(slot, self._address + offset)
        return int(status) if status else self._arena[offset : offset + SLOT_BYTES[slot]]

    def stored(self) -> bytes:
        return self._file.read_bytes()

    def overwrite(self, at: int, content: bytes) -> None:
        """Behind its back: through a descriptor of its own, for the program's wants whole pages."""
        with self._file.open("r+b") as other:
            other.seek(at)
            other.write(content)
            other.flush()
            os.fsync(other.fileno())


@contextmanager
def opened(library: ctypes.CDLL, directory: Path) -> Iterator[Program]:
    before = _open_files()
    arena = mmap.mmap(-1, ARENA_BYTES)
    address = ctypes.addressof(ctypes.c_char.from_buffer(arena))
    assert library.edge_open(address, ARENA_BYTES, 1, bytes(directory)) == 0, library.edge_error()
    try:
        (file,) = _open_files() - before
        yield Program(library, arena, file)
    finally:
        library.edge_close()


def _open_files() -> set[Path]:
    # The listing's own descriptor is among them, and closed by now.
    return {path for path in Path("/proc/self/fd").iterdir() if path.exists()}


def content_of(slot: int, seed: int = 0) -> bytes:
    return np.random.default_rng((slot, seed)).bytes(SLOT_BYTES[slot])


@pytest.mark.parametrize("offset", [0, 64, 4100])
def test_what_is_written_is_read_back_wherever_it_lies(library: ctypes.CDLL, tmp_path: Path, offset: int) -> None:
    with opened(library, tmp_path) as program:
        for slot in range(4):
            program.write(slot, content_of(slot), offset=offset)
        assert [program.read(slot, offset=offset + 128) for slot in range(4)] == [content_of(slot) for slot in range(4)]


def test_nothing_of_a_tensor_is_in_the_file(library: ctypes.CDLL, tmp_path: Path) -> None:
    with opened(library, tmp_path) as program:
        for slot in range(4):
            program.write(slot, bytes(SLOT_BYTES[slot]))
        zeros = program.stored()
        for slot in range(4):
            program.write(slot, content_of(slot))
        stored = program.stored()
    for slot in range(4):
        content = content_of(slot)
        assert not any(content[at : at + 12] in stored for at in range(0, len(content) - 11, 501))
        assert bytes(64) not in zeros[OFFSETS[slot] : OFFSETS[slot] + SLOT_BYTES[slot]]


def test_the_same_content_is_never_stored_as_the_same_bytes(library: ctypes.CDLL, tmp_path: Path) -> None:
    seen = set()
    for _ in range(2):  # a key of its own each time it is opened
        with opened(library, tmp_path) as program:
            for _ in range(3):  # a nonce of its own each time it is written
                program.write(0, content_of(0))
                stored = program.stored()
                blocks = range(0, 3 * PAGE_BLOCK_BYTES, PAGE_BLOCK_BYTES)
                seen |= {stored[at : at + PAGE_BLOCK_BYTES] for at in blocks}
    assert len(seen) == 2 * 3 * 3


@pytest.mark.parametrize("at", [0, 17, PAGE_BLOCK_BYTES - 1, PAGE_BLOCK_BYTES, SLOT_BYTES[0] - 1])
def test_a_changed_bit_is_noticed(library: ctypes.CDLL, tmp_path: Path, at: int) -> None:
    with opened(library, tmp_path) as program:
        program.write(0, content_of(0))
        program.overwrite(at, bytes([program.stored()[at] ^ 4]))
        assert program.read(0) == ERROR_PAGE_DAMAGED
        assert b"does not hold what was written" in library.edge_error()
        program.write(0, content_of(0))
        assert program.read(0) == content_of(0), "what is written anew is good again"


def test_what_a_slot_held_earlier_is_noticed(library: ctypes.CDLL, tmp_path: Path) -> None:
    with opened(library, tmp_path) as program:
        program.write(0, content_of(0, seed=1))
        earlier = program.stored()[: SLOT_BYTES[0]]
        program.write(0, content_of(0, seed=2))
        program.overwrite(0, earlier)
        assert program.read(0) == ERROR_PAGE_DAMAGED


def test_slots_and_blocks_that_were_swapped_are_noticed(library: ctypes.CDLL, tmp_path: Path) -> None:
    with opened(library, tmp_path) as program:
        program.write(0, content_of(0))
        program.write(3, content_of(3))
        stored = program.stored()
        program.overwrite(OFFSETS[3], stored[: SLOT_BYTES[0]])
        assert program.read(3) == ERROR_PAGE_DAMAGED
        program.overwrite(0, stored[PAGE_BLOCK_BYTES : 2 * PAGE_BLOCK_BYTES])
        assert program.read(0) == ERROR_PAGE_DAMAGED


def test_what_was_never_written_is_not_read(library: ctypes.CDLL, tmp_path: Path) -> None:
    with opened(library, tmp_path) as program:
        assert program.read(1) == ERROR_PAGE_DAMAGED


def test_it_is_the_cipher_that_others_call_by_this_name(library: ctypes.CDLL) -> None:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    key, nonce, place, content = (np.random.default_rng(n).bytes(n) for n in (32, 12, 16, 5000))
    sealed, tag = ctypes.create_string_buffer(5000), ctypes.create_string_buffer(16)
    library.edge_page_encrypt(sealed, tag, content, ctypes.c_size_t(5000), place, nonce, key)
    assert sealed.raw + tag.raw == AESGCM(key).encrypt(nonce, content, place)


@pytest.mark.slow
@pytest.mark.parametrize("triple", ["aarch64-linux-gnu", "x86_64-linux-musl"])
def test_it_is_built_for_other_machines(triple: str, tmp_path: Path) -> None:
    assert b"edge_page_decrypt" in build(tmp_path, triple).read_bytes()


def test_no_instructions_are_assumed_of_other_machines() -> None:
    other = "aarch64" if host_triple().architecture == "x86_64" else "x86_64"
    assert cipher_cpu(parse_triple(f"{other}-linux-gnu")) == "baseline"
    assert cipher_cpu(host_triple()).startswith("baseline")
