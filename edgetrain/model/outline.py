"""An ONNX file without what its large tensors hold, and the same file written again with contents that pass through.

What a model holds is mostly weights, and who replaces them needs neither the old ones nor all new ones in memory at
once. The format is that of Protocol Buffers: a message is a row of fields, each a tag, perhaps a length, and a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import onnx

Pieces = Iterable[bytes | memoryview]

_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9  # fields of ModelProto, GraphProto, TensorProto
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5  # how a field's value is stored
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}
_LARGE_BYTES = 4096
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The bytes of a tensor, which are elsewhere until they are written."""

    nbytes: int
    pieces: Callable[[], Pieces]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A model. Of the initializers that `contents` names, `proto` has name, type and shape alone."""

    proto: Any
    contents: dict[str, Content]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    number: int
    kind: int
    begin: int  # of the tag
    value: int  # of what follows tag and length
    end: int

    @property
    def size(self) -> int:
        return self.end - self.value


def read_outline(path: Path) -> Outline:
    """The model in the file `path`, from which large contents are read once they are written. Raises `OSError`."""
    contents: dict[str, Content] = {}
    with path.open("rb") as file:
        size = file.seek(0, 2)
        model = b"".join(
            _message(_GRAPH, _graph(file, field, path, contents))
            if (field.number, field.kind) == (_GRAPH, _LENGTH)
            else _bytes(file, field.begin, field.end)
            for field in _fields(file, 0, size)
        )
    return Outline(proto=onnx.ModelProto.FromString(model), contents=contents)


def serialised(outline: Outline) -> Iterator[bytes | memoryview]:
    """The model as a file holds it, piece by piece. Raises `OSError` where a content comes from a file that is gone."""
    graph = onnx.GraphProto()
    graph.CopyFrom(outline.proto.graph)
    del graph.initializer[:]
    tensors = [(t, _content(outline, t)) for t in outline.proto.graph.initializer]
    rest = onnx.ModelProto()
    rest.CopyFrom(outline.proto)
    rest.ClearField("graph")
    yield rest.SerializeToString(deterministic=True)
    if not outline.proto.HasField("graph"):
        return
    heads = [_head(tensor.SerializeToString(deterministic=True), content) for tensor, content in tensors]
    body = graph.SerializeToString(deterministic=True)
    held_bytes = sum(content.nbytes for _, content in tensors if content is not None)
    yield _tag(_GRAPH, _LENGTH) + _varint(len(body) + sum(map(len, heads)) + held_bytes) + body
    for head, (_, content) in zip(heads, tensors, strict=True):
        yield head
        if content is not None:
            yield from content.pieces()


def _content(outline: Outline, tensor: Any) -> Content | None:
    """What is elsewhere; not that of another tensor of the same name, which broken files have."""
    return None if tensor.HasField("raw_data") else outline.contents.get(tensor.name)


def _head(tensor: bytes, content: Content | None) -> bytes:
    """An initializer up to where its content follows."""
    if content is None:
        return _message(_INITIALIZER, tensor)
    tensor += _tag(_RAW_DATA, _LENGTH) + _varint(content.nbytes)
    return _tag(_INITIALIZER, _LENGTH) + _varint(len(tensor) + content.nbytes) + tensor


def _graph(file: BinaryIO, graph: _Field, path: Path, contents: dict[str, Content]) -> bytes:
    """The graph without the content of its large initializers, which are noted."""
    parts = []
    for field in _fields(file, graph.value, graph.end):
        if field.number == _INITIALIZER and field.kind == _LENGTH and field.size >= _LARGE_BYTES:
            parts.append(_message(_INITIALIZER, _tensor(file, field, path, contents)))
        else:
            parts.append(_bytes(file, field.begin, field.end))
    return b"".join(parts)


def _tensor(file: BinaryIO, tensor: _Field, path: Path, contents: dict[str, Content]) -> bytes:
    fields = list(_fields(file, tensor.value, tensor.end))
    raw = [field for field in fields if field.number == _RAW_DATA]
    head = b"".join(_bytes(file, field.begin, field.end) for field in fields if field.number != _RAW_DATA)
    name = onnx.TensorProto.FromString(head).name
    if len(raw) != 1 or raw[0].size < _LARGE_BYTES or name in contents:
        return _bytes(file, tensor.value, tensor.end)
    begin, end = raw[0].value, raw[0].end
    contents[name] = Content(nbytes=end - begin, pieces=lambda: _pieces_of_file(path, begin, end))
    return head


def _pieces_of_file(path: Path, begin: int, end: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(begin)
        while begin < end:
            piece = file.read(min(_PIECE_BYTES, end - begin))
            if not piece:
                raise OSError(f"`{path}` was cut short while it was read")
            begin += len(piece)
            yield piece


def _fields(file: BinaryIO, begin: int, end: int) -> Iterator[_Field]:
    while begin < end:
        file.seek(begin)
        tag = _read_varint(file)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            _read_varint(file)
            value = file.tell()
            yield _Field(number=number, kind=kind, begin=begin, value=value, end=value)
            begin = value
            continue
        size = _read_varint(file) if kind == _LENGTH else _FIXED_BYTES[kind]
        value = file.tell()
        yield _Field(number=number, kind=kind, begin=begin, value=value, end=value + size)
        begin = value + size


def _bytes(file: BinaryIO, begin: int, end: int) -> bytes:
    file.seek(begin)
    return file.read(end - begin)


def _read_varint(file: BinaryIO) -> int:
    """Seven bits in each byte, the lowest first; the highest bit says that another follows."""
    value = shift = 0
    while True:
        (byte,) = file.read(1)
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _tag(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _message(number: int, content: bytes) -> bytes:
    return _tag(number, _LENGTH) + _varint(len(content)) + content
