"""Files that notice every changed bit, because they end with the SHA-256 of all that comes before.

Content and seal are one file, so a crash leaves both or neither. A seal shows damage; it does not show who wrote a
file. JSON objects have it as last entry, ONNX models as last entry of their metadata.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

from edgetrain.files.texts import parse_json

SEAL = "sha256"
_DIGITS = 64
_TAIL = re.compile(rb',\n "' + SEAL.encode() + rb'": "([0-9a-f]{64})"\n\}\n')
MODEL_SEAL = "edgetrain.sha256"
_ENTRY = b"\x0a" + bytes([len(MODEL_SEAL)]) + MODEL_SEAL.encode() + b"\x12" + bytes([_DIGITS])  # key, value follows
_MODEL_TAIL = b"\x72" + bytes([len(_ENTRY) + _DIGITS]) + _ENTRY  # field 14 of a ModelProto: metadata_props

_TAIL_BYTES = len(f',\n "{SEAL}": "{"0" * _DIGITS}"\n}}\n')


def sealed(text: str) -> str:
    """The JSON object with its seal as last entry."""
    head = text.rstrip().removesuffix("}").rstrip()
    return f'{head},\n "{SEAL}": "{hashlib.sha256(head.encode()).hexdigest()}"\n}}\n'


def parse_sealed(text: str | bytes) -> Any:
    """The value, without its seal. A text without any is one of an older version, and is taken as it is.

    Raises `ValueError` for a seal that does not fit the text, and as `parse_json` does.
    """
    content = text.encode() if isinstance(text, str) else text
    data = parse_json(content)
    if not _ends_like_sealed(data):
        return data
    tail = _TAIL.fullmatch(content[-_TAIL_BYTES:])
    if tail is None or hashlib.sha256(content[:-_TAIL_BYTES]).hexdigest() != tail[1].decode():
        raise ValueError("its check sum does not match its content")
    del data[SEAL]
    return data


def is_sealed(text: bytes) -> bool:
    """Whether the JSON text has a seal, whatever it says."""
    return _TAIL.fullmatch(text[-_TAIL_BYTES:]) is not None


def with_seal(model: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """The pieces of a serialised ONNX model, then its seal: to Protocol Buffers, messages in a row are one."""
    digest = hashlib.sha256()
    for piece in model:
        digest.update(piece)
        yield piece
    yield _MODEL_TAIL + digest.hexdigest().encode()


def is_whole_model(model: bytes) -> bool:
    """Whether `with_seal` wrote these bytes."""
    content, seal = model[:-_DIGITS], model[-_DIGITS:]
    if not content.endswith(_MODEL_TAIL):
        return False
    return hashlib.sha256(content.removesuffix(_MODEL_TAIL)).hexdigest().encode() == seal


def _ends_like_sealed(data: Any) -> bool:
    """Whether the last entry is, or was before a bit of its key changed, a seal."""
    if not isinstance(data, dict) or not data:
        return False
    key, value = next(reversed(data.items()))
    return SEAL in data or (len(key) == len(SEAL) and isinstance(value, str) and len(value) == _DIGITS)
