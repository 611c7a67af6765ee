"""Archives are what linkers expect, and the same bytes for the same objects."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from edgetrain.errors import DataError
from edgetrain.toolchain.c_compiler import find_compiler
from edgetrain.toolchain.object_archive import Member, read_archive, write_archive


def _members(folder: Path) -> list[Member]:
    compiler = find_compiler()
    members = []
    for number, name in enumerate(("one", "a_rather_long_name_of_a_kernel", "two")):
        (folder / f"{name}.c").write_text(f"int {name}(void) {{ return {number}; }}\n")
        command = [*compiler.command, "-fPIC", "-c", f"{name}.c", "-o", f"{name}.o"]
        subprocess.run(command, cwd=folder, check=True, env=None)
        members.append(Member(symbol=name, content=(folder / f"{name}.o").read_bytes() + b"\n" * (number % 2)))
    return members


def test_a_linker_finds_every_object_by_its_symbol(tmp_path: Path) -> None:
    members = _members(tmp_path)
    write_archive(tmp_path / "kernels.a", members)
    calls = " + ".join(f"{member.symbol}()" for member in members)
    names = "".join(f"int {member.symbol}(void);\n" for member in members)
    (tmp_path / "main.c").write_text(f"{names}int total(void) {{ return {calls}; }}\n")
    command = [*find_compiler().command, "-fPIC", "-shared", "main.c", "kernels.a", "-o", "all.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert ctypes.CDLL(str(tmp_path / "all.so")).total() == 0 + 1 + 2


def test_objects_come_back_as_they_went_in(tmp_path: Path) -> None:
    members = [Member(symbol=f"k{n}", content=bytes(range(n))) for n in (0, 1, 7, 200)]
    for name in ("one.a", "other.a"):
        write_archive(tmp_path / name, members)
    assert read_archive(tmp_path / "one.a") == [(f"k{n}.o", m.content) for n, m in enumerate(members)]
    assert (tmp_path / "one.a").read_bytes() == (tmp_path / "other.a").read_bytes()


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"!<arch>\nnonsense"], ids=["empty", "an object", "damaged"])
def test_another_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "kernels.a").write_bytes(content)
    with pytest.raises(DataError):
        read_archive(tmp_path / "kernels.a")
