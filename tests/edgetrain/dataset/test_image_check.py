"""Claims about finding damaged pictures early."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgetrain.dataset import image_check
from edgetrain.dataset.image_check import broken_text, find_broken


def noise(path: Path) -> Path:
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 50, 3), np.uint8)).save(path)
    return path


@pytest.mark.parametrize("ending", ["jpg", "png", "gif", "bmp", "webp", "tif"])
def test_a_file_that_was_cut_off_is_found(ending: str, tmp_path: Path) -> None:
    whole, cut = noise(tmp_path / f"whole.{ending}"), noise(tmp_path / f"cut.{ending}")
    cut.write_bytes(cut.read_bytes()[:-200])
    found = find_broken([whole, cut])
    assert list(found) == [cut]
    assert found[cut].why


@pytest.mark.parametrize("ending", ["jpg", "png"])
def test_beyond_what_is_decoded_a_cut_is_still_found_at_the_end(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_check, "_MOST_FILES", 0)
    whole, cut = noise(tmp_path / f"whole.{ending}"), noise(tmp_path / f"cut.{ending}")
    cut.write_bytes(cut.read_bytes()[:-200])
    assert list(find_broken([whole, cut])) == [cut]


def test_a_jpeg_with_something_behind_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_check, "_MOST_FILES", 0)
    path = noise(tmp_path / "motion.jpg")
    path.write_bytes(path.read_bytes() + bytes(1000))
    assert not find_broken([path])


def test_up_to_five_names_are_told() -> None:
    assert broken_text([Path("a")]) == "a"
    assert broken_text([Path(name) for name in "abcdefg"]) == "a, b, c, d, e and 2 more"
