"""The commands of a page: its fenced blocks in order, with what the page says about running them.

Blocks of `sh` and `python` are run. A block with a title is a file, which the page asks its reader to write. A block of
`text` shows what the block before it prints. A comment above a block is an instruction to who runs the page:

    <!-- not run: needs a device -->    the block is for reading
    <!-- exit code 3 -->                the block ends with this exit code

so that pages read well, and none of it is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(
    r'^(?:<!-- (?P<comment>[^\n]*) -->\n)?```(?P<language>\w+)(?: title="(?P<title>[^"\n]+)")?\n(?P<text>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)
_NOT_RUN = "not run: needs "
_EXIT_CODE = "exit code "
# A number with what is written to it, its unit too: what differs from one machine to the next.
_NUMBER = re.compile(r"[\d][\d.,]*(?:[eE][-+]?\d+)?\s?(?:[kMGTKpnµm]?i?(?:B|s|J|g)\b|%|x\b)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block. `needs` says why it cannot be run; it is empty for those that are."""

    language: str
    text: str
    title: str = ""
    needs: str = ""
    exit_code: int = 0

    @property
    def is_run(self) -> bool:
        return self.language in ("sh", "python") and not self.needs and not self.title


def read_blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page in order. Raises `ValueError` for a comment above a block that says neither of the two."""
    for match in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        comment = match["comment"] or ""
        needs = comment.removeprefix(_NOT_RUN) if comment.startswith(_NOT_RUN) else ""
        code = comment.removeprefix(_EXIT_CODE) if comment.startswith(_EXIT_CODE) else "0"
        if not code.isdecimal() or (comment and not needs and code == "0"):
            raise ValueError(f"{page}: `{comment}` above a block is neither `{_NOT_RUN}…` nor `{_EXIT_CODE}N`")
        yield Block(
            language=match["language"], text=match["text"], title=match["title"] or "", needs=needs, exit_code=int(code)
        )


def missing_lines(shown: str, printed: str) -> list[str]:
    """The lines that a page shows and a command did not print, numbers aside."""
    found = [_without_numbers(line) for line in printed.splitlines()]
    return [
        line
        for line in shown.splitlines()
        if line.strip() and not any(_without_numbers(line) in candidate for candidate in found)
    ]


def _without_numbers(line: str) -> str:
    return " ".join(_NUMBER.sub("0 ", line).split())
