"""Claims about pictures in every mode that people have them in: what is white stays white, what is up stays up."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgetrain.dataset import room
from edgetrain.dataset.pictures import pillow, read_picture
from edgetrain.errors import DataError
from edgetrain.free_memory import MemoryReading

_RAMP = np.linspace(0, 1, 24).reshape(4, 6)
_SIXTEEN = np.rint(_RAMP * 65535).astype(np.uint16)


def saved(image: Any, path: Path, **options: Any) -> np.ndarray[Any, Any]:
    image.save(path, **options)
    return read_picture(path)


@pytest.mark.parametrize("ending", ["png", "tif"])
def test_16_bits_come_back_exactly(ending: str, tmp_path: Path) -> None:
    found = saved(Image.fromarray(_SIXTEEN), tmp_path / f"deep.{ending}")
    assert found.dtype == np.uint16
    assert np.array_equal(found, _SIXTEEN)


def test_32_bits_and_fractions_become_16_bits(tmp_path: Path) -> None:
    whole = Image.fromarray(np.rint(_RAMP * (2**31 - 1)).astype(np.int32))
    assert np.array_equal(saved(whole, tmp_path / "a.tif"), np.rint(_RAMP * (2**31 - 1)).astype(np.int64) >> 16)
    for scale in (1, 255):
        found = saved(Image.fromarray((_RAMP * scale).astype(np.float32)), tmp_path / "b.tif")
        assert np.abs(found.astype(int) - _SIXTEEN).max() <= 1


@pytest.mark.parametrize("wrong", [-1.0, np.nan, 1e6])
def test_fractions_without_a_known_white_are_refused(wrong: float, tmp_path: Path) -> None:
    values = _RAMP.astype(np.float32)
    values[0, 0] = wrong
    with pytest.raises(DataError, match=r"a\.tif is not an image that can be read"):
        saved(Image.fromarray(values), tmp_path / "a.tif")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photo_stands_upright_as_its_exif_says(orientation: int, tmp_path: Path) -> None:
    upright = np.zeros((16, 32, 3), np.uint8)
    upright[:8, :16] = (250, 10, 10)  # red at the top left, whatever the camera's position
    turned = {1: upright, 2: upright[:, ::-1], 3: upright[::-1, ::-1], 4: upright[::-1]}
    sideways = upright.transpose(1, 0, 2)
    turned |= {5: sideways, 6: sideways[::-1], 7: sideways[::-1, ::-1], 8: sideways[:, ::-1]}
    exif = Image.Exif()
    exif[0x0112] = orientation
    found = saved(Image.fromarray(np.ascontiguousarray(turned[orientation])), tmp_path / "a.jpg", exif=exif, quality=95)
    assert found.shape == (16, 32, 3)
    assert np.abs(found.astype(int) - upright).mean() < 5


def test_a_cmyk_jpeg_has_the_colours_it_shows(tmp_path: Path) -> None:
    red = Image.new("RGB", (8, 8), (255, 0, 0)).convert("CMYK")
    found = saved(red, tmp_path / "a.jpg", quality=95)
    assert found.shape == (8, 8, 3)
    assert found[4, 4, 0] > 200
    assert found[4, 4, 1:].max() < 60


def test_a_palette_is_looked_up(tmp_path: Path) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([0, 0, 0, 10, 200, 30])
    image.putdata([0, 1])
    assert saved(image, tmp_path / "a.png").tolist() == [[[0, 0, 0], [10, 200, 30]]]


@pytest.mark.parametrize(
    ("mode", "pixel", "expected"),
    [
        ("RGBA", (9, 9, 9, 0), [255, 255, 255]),
        ("RGBA", (9, 8, 7, 255), [9, 8, 7]),
        ("LA", (9, 0), 255),
        ("LA", (9, 255), 9),
        ("L", 9, 9),
        ("1", 1, 255),
    ],
)
def test_what_is_transparent_is_white(mode: str, pixel: Any, expected: Any, tmp_path: Path) -> None:
    assert saved(Image.new(mode, (1, 1), pixel), tmp_path / "a.png")[0, 0].tolist() == expected


def test_a_transparent_palette_colour_is_white(tmp_path: Path) -> None:
    image = Image.new("P", (1, 1), 1)
    image.putpalette([0, 0, 0, 10, 200, 30])
    assert saved(image, tmp_path / "a.png", transparency=1).tolist() == [[[255, 255, 255]]]


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("L", (100, 100)).save(tmp_path / "bomb.png")
    monkeypatch.setattr(pillow(), "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(DataError, match=r"bomb\.png is refused"):
        read_picture(tmp_path / "bomb.png")


@pytest.mark.parametrize("side", [20_000, 100_000, (1 << 31) - 1])
def test_a_picture_that_says_it_is_huge_is_refused_without_its_memory(side: int, tmp_path: Path) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(bytes(1000))), chunk(b"IEND", b""))
    (tmp_path / "bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"bomb\.png is refused"):
            read_picture(tmp_path / "bomb.png")
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_a_picture_that_would_take_most_of_the_free_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("RGBA", (1000, 1000)).save(tmp_path / "1.png")
    assert read_picture(tmp_path / "1.png").shape == (1000, 1000, 3)
    little = MemoryReading(available_bytes=40_000_000, total_bytes=10**9, stalled_share=0.0)
    monkeypatch.setattr(room, "read_memory", lambda: little)
    with pytest.raises(DataError, match="unpack to 24MB"):
        read_picture(tmp_path / "1.png")
