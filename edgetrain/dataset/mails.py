"""Reads raw mails (RFC 822 files) as texts: subject and words, without headers, tags and encodings.

    mails/easy-ham-1/0001.txt   mails/spam-1/0001.txt

A sub-folder's name up to its first digit is the class where it ends in `ham` or `spam`, so that SpamAssassin's
`easy-ham-1`, `easy-ham-2` and `hard-ham-1` are one class; other names are classes as they are. The other headers are
left out on purpose: they name the mailing lists and hosts of this one corpus, and a model that learned them would have
learned nothing about mails.
"""

from __future__ import annotations

import email
import email.errors
import email.header
import email.message
import email.policy
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

from edgetrain.dataset.folders import class_files, content_groups
from edgetrain.dataset.samples import Array, Part
from edgetrain.dataset.text import text_part, tokenizer_of
from edgetrain.recipes import TextSection

_CLASS = re.compile(r"(?:.*-)?(ham|spam)(?:-\d+)?\Z")
_SILENT_TAGS = frozenset({"script", "style"})
_BLANKS = re.compile(r"\s+")
# More than any model here reads, and little enough to keep the whole corpus in memory.
_MOST_CHARACTERS = 20_000
_MOST_BYTES = 1 << 24


def read_mails(folder: Path, text: TextSection, *, exclude: Sequence[str] = ()) -> tuple[Part, tuple[str, ...], Array]:
    """The mails that are not empty, the names of their classes, and groups: equal texts are one."""
    tokenizer = tokenizer_of(text)
    found = class_files(folder, (".txt", ".eml"), exclude=exclude)
    names = tuple(sorted({mail_class(name) for name in found.class_names}))
    texts: list[str] = []
    labels: list[int] = []
    for path, label in zip(found.paths, found.labels, strict=True):
        words = read_mail(path)
        if words:
            texts.append(words)
            labels.append(names.index(mail_class(found.class_names[label])))
    part = text_part(texts, np.array(labels, np.int64), tokenizer, text)
    return part, names, content_groups(words.encode() for words in texts)


def mail_class(folder: str) -> str:
    """`ham` for `hard-ham-1`, `spam` for `spam-2`, and any other name itself."""
    match = _CLASS.match(folder)
    return match[1] if match else folder


def read_mail(path: Path) -> str:
    """The text of the mail in a file. What follows its first 16 MiB is an attachment, and not read."""
    with path.open("rb") as file:
        return mail_text(file.read(_MOST_BYTES))


def mail_text(data: bytes) -> str:
    """Subject and body of a raw mail as one line of text. Broken mails give what can be read of them."""
    # compat32: the newer policies raise on malformed headers, of which spam is full.
    message = email.message_from_bytes(data, policy=email.policy.compat32)
    subject = _decoded_header(str(message.get("Subject", "")))
    bodies = [_body(part) for part in message.walk() if part.get_content_maintype() == "text"]
    return _BLANKS.sub(" ", " ".join((subject, *bodies))).strip()[:_MOST_CHARACTERS]


def _decoded_header(value: str) -> str:
    try:
        pieces = email.header.decode_header(value)
    except (email.errors.HeaderParseError, ValueError):
        return value
    return "".join(_decoded(piece, charset) if isinstance(piece, bytes) else piece for piece, charset in pieces)


def _body(part: email.message.Message) -> str:
    payload = part.get_payload(decode=True)
    if not isinstance(payload, bytes):
        return ""
    text = _decoded(payload, part.get_content_charset())
    return html_text(text) if part.get_content_subtype() == "html" else text


def _decoded(data: bytes, charset: str | None) -> str:
    for name in (charset, "utf-8"):
        try:
            return data.decode(name or "ascii")
        except (LookupError, ValueError):  # an unknown or a wrong charset
            continue
    return data.decode("latin-1")


def html_text(html: str) -> str:
    """The words that a browser would show."""
    parser = _Words()
    parser.feed(html)
    parser.close()
    return " ".join(parser.words)


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.words: list[str] = []
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._silent += tag in _SILENT_TAGS

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in _SILENT_TAGS and self._silent > 0

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.words.append(data)

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """A browser passes over `<![` and what it does not know, as over a comment; the standard parser fails."""
        return self.parse_bogus_comment(i)
