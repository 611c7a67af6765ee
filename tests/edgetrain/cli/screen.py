"""What a person sees on a terminal: a screen that follows the few control codes that progress bars use."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_PIECES = re.compile(r"\x1b\[(\d*)A|\x1b\[[\d;]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+")
_SECONDS = 120.0


def lines_on_screen(written: str) -> list[str]:
    """The lines as they stand in the end, and above a bar also those that it stood on before."""
    lines, row, column = [""], 0, 0
    for piece in _PIECES.finditer(written):
        text = piece.group()
        if text == "\r":
            column = 0
        elif text == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif text.startswith("\x1b"):
            row -= int(piece.group(1) or 1) if text.endswith("A") else 0
        else:
            padded = lines[row].ljust(column)
            lines[row] = padded[:column] + text + padded[column + len(text) :]
            column += len(text)
    return [line.rstrip() for line in lines]


def run_on_a_terminal(command: Sequence[str], *, cwd: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """The command's exit code and all that it wrote to its terminal, of 200 columns."""
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        command, cwd=cwd, env={**environment, "COLUMNS": "200", "TERM": "xterm"}, stdin=end, stdout=end, stderr=end
    )
    os.close(end)
    written = b""
    try:
        while select.select([terminal], [], [], _SECONDS)[0]:
            try:
                piece = os.read(terminal, 65536)
            except OSError:  # Linux says EIO once nobody has the other end open
                break
            if not piece:
                break
            written += piece
    finally:
        os.close(terminal)
    return process.wait(), written.decode(errors="replace")
