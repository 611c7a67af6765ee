"""Claims about mails: what a person reads of them is kept, the rest is not."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetrain.dataset.mails import html_text, mail_class, mail_text, read_mails
from edgetrain.recipes import TextSection

PLAIN = b"From: a@b.c\nReceived: from secret.host\nSubject: Hello\n\nfirst line\nsecond line\n"


def test_subject_and_body_are_kept_and_other_headers_are_not() -> None:
    assert mail_text(PLAIN) == "Hello first line second line"


def test_html_is_what_a_browser_shows() -> None:
    html = "<html><style>b {color: red}</style><p>Buy&nbsp;<b>now</b><script>evil()</script> &amp; save"
    assert html_text(html).split() == ["Buy", "now", "&", "save"]


@pytest.mark.parametrize(
    ("header", "body"),
    [
        ("Content-Type: text/plain; charset=iso-8859-1\nContent-Transfer-Encoding: quoted-printable", b"caf=E9"),
        (
            "Content-Type: text/html; charset=utf-8\nContent-Transfer-Encoding: base64",
            base64.b64encode("café".encode()),
        ),
        ("Content-Type: text/plain; charset=no-such-charset", "café".encode()),
        ("Content-Type: text/plain", "café".encode("latin-1")),
    ],
)
def test_encodings_are_undone_and_wrong_ones_survived(header: str, body: bytes) -> None:
    assert mail_text(b"Subject: =?utf-8?q?=C3=A9t=C3=A9?=\n" + header.encode() + b"\n\n" + body) == "été café"


def test_every_text_part_of_a_mail_counts_and_attachments_do_not() -> None:
    mail = (
        b"Subject: s\nContent-Type: multipart/mixed; boundary=X\n\n--X\nContent-Type: text/plain\n\none\n"
        b"--X\nContent-Type: application/pdf\n\nbinary\n--X\nContent-Type: text/html\n\n<i>two</i>\n--X--\n"
    )
    assert mail_text(mail) == "s one two"


@settings(deadline=None)
@given(data=st.binary(max_size=300))
def test_no_bytes_are_too_broken_to_be_read(data: bytes) -> None:
    assert isinstance(mail_text(data), str)
    assert isinstance(
        mail_text(b"Subject: " + data + b"\nContent-Type: text/html; charset=" + data + b"\n\n" + data), str
    )


@pytest.mark.parametrize(
    ("folder", "expected"),
    [("easy-ham-1", "ham"), ("hard-ham-1", "ham"), ("spam-2", "spam"), ("spam", "spam"), ("hamlet", "hamlet")],
)
def test_the_folders_of_spam_assassin_are_two_classes(folder: str, expected: str) -> None:
    assert mail_class(folder) == expected


def test_a_folder_of_mails_has_its_classes_joined_and_empty_mails_left_out(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nhello\n")
    mails = {
        "easy-ham-1/1.txt": PLAIN,
        "hard-ham-1/1.txt": PLAIN,
        "spam-1/1.txt": b"Subject: win\n\n",
        "spam-1/2.txt": b"",
    }
    for name, data in mails.items():
        (tmp_path / "mails" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mails" / name).write_bytes(data)
    section = TextSection(vocabulary=str(tmp_path / "vocab.txt"), length=5)
    part, names, groups = read_mails(tmp_path / "mails", section)
    assert (names, part.labels.tolist()) == (("ham", "spam"), [0, 0, 1])
    assert groups[0] == groups[1] != groups[2]
    assert part.features[0]["input_ids"].tolist() == [2, 4, 1, 1, 3]
