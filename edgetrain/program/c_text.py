"""Names and numbers as C spells them: ONNX names hold slashes, quotes and anything else."""

from __future__ import annotations

import re

_PLAIN = frozenset(range(0x20, 0x7F)) - set(b'"\\?')  # two question marks begin a trigraph


def comment(text: str) -> str:
    """Text that neither ends nor nests a C comment, nor breaks its line."""
    return re.sub(r"\s+", " ", text).replace("*/", "* /").replace("/*", "/ *")


def escaped(text: str) -> str:
    """The inside of a string literal, in UTF-8.

    Octal escapes have at most three digits, so that what follows is never taken for a part of one.
    """
    return "".join(chr(byte) if byte in _PLAIN else f"\\{byte:03o}" for byte in text.encode())


def int64_literal(value: int) -> str:
    """C has no negative literals: the lowest number cannot be spelled with one."""
    return "INT64_MIN" if value == -(2**63) else f"INT64_C({value})"


def float_literal(value: float) -> str:
    """Of a number that a float holds: in hexadecimal, which is exact."""
    return f"{float(value).hex()}f"
