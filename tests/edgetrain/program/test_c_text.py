"""Names and numbers in C."""

from __future__ import annotations

import subprocess
from pathlib import Path

from edgetrain.program.c_text import comment, escaped, int64_literal
from tests.edgetrain.program.tiny_program import host_compiler

NAMES = ("plain", 'a "quoted" \\ name', "what??/ for", "größe\n1", "ends in 7\x017")
NUMBERS = (0, -1, 2**63 - 1, -(2**63))


def test_c_reads_names_and_numbers_as_they_are(tmp_path: Path) -> None:
    lines = [f'  puts("{escaped(name)}"); putchar(1); /* {comment(name)} */' for name in NAMES]
    lines += [f'  printf("%lld", (long long){int64_literal(number)}); putchar(1);' for number in NUMBERS]
    text = "#include <stdint.h>\n#include <stdio.h>\nint main(void) {\n" + "\n".join(lines) + "\n  return 0;\n}\n"
    (tmp_path / "names.c").write_text(text, encoding="utf-8")
    command = [*host_compiler().command, "-std=c11", "-Wall", "-Wextra", "-Werror", "names.c", "-o", "names"]
    subprocess.run(command, cwd=tmp_path, check=True)
    printed = subprocess.run([tmp_path / "names"], capture_output=True, check=True).stdout.decode()
    expected = "".join(f"{name}\n\x01" for name in NAMES) + "".join(f"{number}\x01" for number in NUMBERS)
    assert printed == expected


def test_a_comment_ends_where_it_should() -> None:
    assert comment("a */ b /* c\nd") == "a * / b / * c d"
