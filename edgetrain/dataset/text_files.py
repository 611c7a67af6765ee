"""Text files as people have them, read in bounded memory: a whole text, or the lines of a JSONL file."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgetrain.errors import DataError
from edgetrain.files.texts import parse_json

MOST_LINE_BYTES = 1 << 20  # of a JSONL file: a text of two hundred thousand words
MOST_TEXT_BYTES = 1 << 20  # of a text file; a model reads its beginning


def read_text(path: Path) -> str:
    """The file as UTF-8, or as Latin-1 where it is not: old texts are mixed, and each byte has a meaning there.

    Of a file of more than 1 MiB the beginning: no model here reads so far.
    """
    with path.open("rb") as file:
        data = file.read(MOST_TEXT_BYTES)
        is_whole = not file.read(1)
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(data, final=is_whole)
    except UnicodeDecodeError:
        return data.decode("latin-1")


def jsonl_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, each with its number from 1. Raises `DataError` for bytes that are not UTF-8.

    So it does for a line of more than 1 MiB, of which no more is read.
    """
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MOST_LINE_BYTES + 1):
            number += 1
            if len(line) > MOST_LINE_BYTES:
                raise DataError(
                    f"{path}:{number} is longer than {MOST_LINE_BYTES >> 20} MiB",
                    why="a line is one text, of which a model reads the beginning",
                    fix="write each text on a line of its own, and cut those that are longer",
                )
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path} cannot be read as JSONL", why=f"line {number}: {error}", fix="save it as UTF-8 text"
                ) from error
            if text.strip():
                yield number, text


def json_record(where: str, line: str, *, example: str) -> dict[str, Any]:
    """The object in a line, empty for other JSON. Raises `DataError` for what is no JSON, or holds half a character."""
    try:
        record = parse_json(line)
    except ValueError as error:
        raise DataError(f"{where} is not JSON", why=str(error), fix=example) from error
    if not isinstance(record, dict):
        return {}
    for key, value in record.items():
        if not (is_text(key) and (not isinstance(value, str) or is_text(value))):
            raise DataError(
                f"{where} holds half of a character",
                why="an escape of \\ud800 to \\udfff is text only as one of a pair (a lone surrogate)",
                fix="write the file again from the original texts",
            )
    return record


def is_text(value: str) -> bool:
    """Whether it can be written as UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
