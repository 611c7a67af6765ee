from __future__ import annotations

import io
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgetrain.files.encrypted import CHUNK_BYTES, MAGIC, EncryptedReader, SealedFileError, encrypting, is_encrypted
from edgetrain.files.secret_key import SecretKey

KEY = SecretKey(bytes(range(32)))
ROLE = "checkpoint.bin"
HEADER_BYTES, TAG_BYTES = 60, 16
SEALED_BYTES = CHUNK_BYTES + TAG_BYTES
SIZES = (0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES, 3 * CHUNK_BYTES + 77)


def sealed(content: bytes, *, key: SecretKey = KEY, role: str = ROLE, piece: int = 10_000) -> bytes:
    file = io.BytesIO()
    with encrypting(file, key, role) as writer:
        for start in range(0, len(content), piece):
            writer.write(memoryview(content)[start : start + piece])
    return file.getvalue()


def opened(data: bytes, *, key: SecretKey = KEY, role: str = ROLE) -> bytes:
    return EncryptedReader(io.BytesIO(data), key, role).read()


def is_refused(data: bytes) -> bool:
    try:
        opened(data)
    except SealedFileError:
        return True
    return False


@pytest.fixture(scope="module")
def content() -> bytes:
    return random.Random(5).randbytes(2 * CHUNK_BYTES + 1000)


@pytest.fixture(scope="module")
def file(content: bytes) -> bytes:
    return sealed(content)


@pytest.mark.parametrize("size", SIZES)
def test_what_is_written_is_read_in_pieces_of_any_size(size: int) -> None:
    content = random.Random(size).randbytes(size)
    reader = EncryptedReader(io.BytesIO(sealed(content, piece=33_333)), KEY, ROLE)
    pieces = []
    while piece := reader.read(12_345):
        pieces.append(piece)
    assert b"".join(pieces) == content
    assert all(len(piece) == 12_345 for piece in pieces[:-1])


def test_the_content_shows_nowhere_in_the_file(file: bytes, content: bytes) -> None:
    assert all(content[start : start + 16] not in file for start in range(0, len(content) - 16, 997))


def test_the_same_content_never_gives_the_same_bytes_twice(content: bytes) -> None:
    one, two = sealed(content), sealed(content)
    assert one[: len(MAGIC)] == two[: len(MAGIC)]
    assert one[12:44] != two[12:44], "the salt decides the file's own key"
    assert not set(zip(*(one[60 + at :] for at in range(8)), strict=False)) & set(
        zip(*(two[60 + at :] for at in range(8)), strict=False)
    ), "no eight bytes are the same"


@pytest.mark.parametrize("seed", range(8))
def test_every_flipped_bit_is_noticed(file: bytes, seed: int) -> None:
    generator = random.Random(seed)
    regions = {
        "header": (0, HEADER_BYTES),
        "first chunk": (HEADER_BYTES, HEADER_BYTES + CHUNK_BYTES),
        "first tag": (HEADER_BYTES + CHUNK_BYTES, HEADER_BYTES + SEALED_BYTES),
        "second chunk": (HEADER_BYTES + SEALED_BYTES, HEADER_BYTES + 2 * SEALED_BYTES),
        "last chunk": (HEADER_BYTES + 2 * SEALED_BYTES, len(file) - TAG_BYTES),
        "last tag": (len(file) - TAG_BYTES, len(file)),
    }
    for region, (start, end) in regions.items():
        at = generator.randrange(start, end)
        damaged = bytearray(file)
        damaged[at] ^= 1 << generator.randrange(8)
        assert is_refused(bytes(damaged)), f"a bit of the {region}, byte {at}, was flipped"


def test_every_byte_of_the_header_counts(file: bytes) -> None:
    for at in range(HEADER_BYTES):
        damaged = bytearray(file)
        damaged[at] ^= 0x80
        with pytest.raises(SealedFileError):
            opened(bytes(damaged))


def test_every_cut_is_noticed(file: bytes) -> None:
    ends = [0, 5, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 8, HEADER_BYTES + TAG_BYTES]
    ends += [HEADER_BYTES + SEALED_BYTES, HEADER_BYTES + 2 * SEALED_BYTES, len(file) - TAG_BYTES, len(file) - 1]
    for end in ends:
        assert is_refused(file[:end]), f"the file was cut to {end} bytes"


def test_what_follows_the_end_is_noticed(file: bytes) -> None:
    for more in (b"!", bytes(TAG_BYTES), bytes(SEALED_BYTES), file[HEADER_BYTES:]):
        with pytest.raises(SealedFileError):
            opened(file + more)


def test_chunks_in_another_order_are_noticed(file: bytes) -> None:
    first, second = HEADER_BYTES, HEADER_BYTES + SEALED_BYTES
    end = second + SEALED_BYTES
    for damaged in (
        file[:first] + file[second:end] + file[first:second] + file[end:],
        file[:first] + file[second:],
        file[:second] + file[first:second] + file[end:],
    ):
        with pytest.raises(SealedFileError, match="not as it was written"):
            opened(damaged)


def test_chunks_of_an_earlier_writing_are_noticed(file: bytes, content: bytes) -> None:
    earlier = sealed(content)
    with pytest.raises(SealedFileError):
        opened(file[: HEADER_BYTES + SEALED_BYTES] + earlier[HEADER_BYTES + SEALED_BYTES :])


def test_a_file_in_the_place_of_another_is_noticed(file: bytes) -> None:
    with pytest.raises(SealedFileError, match="another file's"):
        opened(file, role="best.bin")


def test_another_key_is_told_from_damage(file: bytes) -> None:
    with pytest.raises(SealedFileError, match="another key") as caught:
        opened(file, key=SecretKey(bytes(32)))
    assert caught.value.is_wrong_key


def test_a_plain_file_is_not_taken_for_an_encrypted_one() -> None:
    with pytest.raises(SealedFileError, match="somebody else wrote it"):
        opened(b"EDGETRN\n" + bytes(1000))


def test_a_block_that_fails_leaves_no_whole_file(content: bytes) -> None:
    def chunks() -> Iterator[bytes]:
        yield content[: CHUNK_BYTES + 5]
        raise RuntimeError("the disk is full")

    file = io.BytesIO()
    with pytest.raises(RuntimeError), encrypting(file, KEY, ROLE) as writer:  # noqa: PT012
        for chunk in chunks():
            writer.write(chunk)
    assert is_refused(file.getvalue())


def test_encrypted_files_are_told_by_their_beginning(tmp_path: Path, file: bytes) -> None:
    (tmp_path / "one").write_bytes(file)
    (tmp_path / "two").write_bytes(b"EDGE")
    assert is_encrypted(tmp_path / "one")
    assert not is_encrypted(tmp_path / "two")
