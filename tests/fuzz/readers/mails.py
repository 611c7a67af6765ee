"""A mail as it was stored: headers, parts, encodings, HTML."""

from __future__ import annotations

from edgetrain.dataset.mails import mail_text
from tests.fuzz.harness import documented

WORDS = (
    *(b"Subject: =?utf-8?b?", b"?=", b"Content-Type: multipart/mixed; boundary=", b"Content-Type: text/html; charset="),
    *(b"Content-Transfer-Encoding: base64\n", b"quoted-printable", b"x-uuencode", b"\n--b\n", b"utf-7", b"<![CDATA["),
    *(b"<script>", b"</script>", b"&#x110000;", b"<!--", b"utf-16", b"idna", b"punycode", b"begin 644 a\n"),
)


def one_input(data: bytes) -> None:
    with documented():
        mail_text(data).encode()
