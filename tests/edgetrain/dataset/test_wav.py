"""Claims about reading wav clips."""

from __future__ import annotations

import contextlib
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetrain.dataset.log_mel import LogMel, log_mel
from edgetrain.dataset.wav import opened, read_wavs
from edgetrain.errors import DataError
from edgetrain.recipes import AudioSection
from tests.edgetrain.dataset.whole_sound import Whole

AUDIO = AudioSection(sample_rate=2000, seconds=0.1, mels=4, window_ms=20, hop_ms=10)
SOUND = np.random.default_rng(0).uniform(-0.9, 0.9, 300)


def write_wav(path: Path, sound: np.ndarray[Any, Any], *, bits: int = 16, rate: int = 2000, channels: int = 1) -> None:
    """Sample by sample, with Python's whole numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    frames = bytearray()
    for value in sound:
        number = round(float(value) * 2 ** (bits - 1))
        frames += (
            (number + 128).to_bytes(1, "little") if bits == 8 else number.to_bytes(bits // 8, "little", signed=True)
        )
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(bits // 8)
        file.setframerate(rate)
        file.writeframes(bytes(frames))


@pytest.mark.parametrize("bits", [8, 16, 24, 32])
def test_pcm_of_each_width_comes_back(bits: int, tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav", SOUND, bits=bits)
    with opened(tmp_path / "a.wav") as recording:
        assert (recording.rate, len(recording)) == (2000, len(SOUND))
        np.testing.assert_allclose(recording.read(0, len(SOUND)), SOUND, atol=2.0 ** -(bits - 1))
        np.testing.assert_allclose(recording.read(7, 19), SOUND[7:19], atol=2.0 ** -(bits - 1))


def test_channels_are_mixed(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav", np.array([0.5, 0.25, -0.5, 0.5]), channels=2)
    with opened(tmp_path / "a.wav") as recording:
        assert recording.read(0, 2).tolist() == [0.375, 0.0]


def test_a_folder_for_each_class_is_read_at_any_depth_without_what_is_excluded(tmp_path: Path) -> None:
    for name in ("ben/1.wav", "anna/more/2.wav", "anna/1.wav", "anna/silence/1.wav"):
        write_wav(tmp_path / name, SOUND)
    (tmp_path / "anna" / "notes.md").write_text("not a clip")
    part, names, groups = read_wavs(tmp_path, AUDIO, exclude=("*/silence/*",))
    assert (names, part.labels.tolist(), groups) == (("anna", "ben"), [0, 0, 1], None)
    settings = LogMel.of(sample_rate=2000, seconds=0.1, window_s=0.02, hop_s=0.01, mels=4)
    expected = log_mel(Whole(np.round(SOUND * 2**15) / 2**15, 2000), settings)
    assert np.array_equal(part.features[0], expected)


def test_a_clip_of_another_rate_is_resampled(tmp_path: Path) -> None:
    write_wav(tmp_path / "a" / "1.wav", SOUND, rate=4000)
    write_wav(tmp_path / "b" / "1.wav", SOUND, rate=1000)
    part, _, _ = read_wavs(tmp_path, AUDIO)
    assert part.features[0].shape == part.features[1].shape == (4, 9)


def test_a_manifest_gives_files_labels_and_groups(tmp_path: Path) -> None:
    for name in ("x.wav", "sub/y.wav"):
        write_wav(tmp_path / name, SOUND)
    (tmp_path / "clips.csv").write_text("file,group,who\nsub/y.wav,g1,zoe\nx.wav,g2,adam\n")
    part, names, groups = read_wavs(tmp_path / "clips.csv", AUDIO, label="who")
    assert groups is not None
    assert (names, part.labels.tolist(), groups.tolist()) == (("adam", "zoe"), [1, 0], ["g1", "g2"])
    assert part.features[1].shape == (4, 9)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("file,label\nno.wav,a\n", r"clips\.csv:2: there is no file .*no\.wav"),
        ("label\na\n", "no column `file`"),
        ("file\na.wav\n", "no column `label`"),
        ("file,label\n", "is empty"),
        ("file,label\nx.wav\n", r"clips\.csv:2 has 1 cells"),
    ],
)
def test_a_broken_manifest_is_named_with_its_line(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "clips.csv").write_text(text)
    with pytest.raises(DataError, match=expected):
        read_wavs(tmp_path / "clips.csv", AUDIO)


def test_a_folder_without_clips_is_a_data_error(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(DataError, match="no such files") as caught:
        read_wavs(tmp_path, AUDIO)
    assert caught.value.fix == "arrange them as `folder/class/name.wav`"


def test_a_file_that_is_no_wav_or_cut_short_is_named(tmp_path: Path) -> None:
    write_wav(tmp_path / "good.wav", SOUND)
    whole = (tmp_path / "good.wav").read_bytes()
    for length in range(0, len(whole), 7):
        (tmp_path / "bad.wav").write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"bad\.wav"), opened(tmp_path / "bad.wav") as recording:
            recording.read(0, len(recording))


@pytest.mark.parametrize("place", [4, 16, 40])
@pytest.mark.parametrize("length", [0, 3, 1 << 20, (1 << 31) - 1, (1 << 32) - 1])
def test_a_chunk_that_lies_about_its_length_is_a_data_error_or_read(place: int, length: int, tmp_path: Path) -> None:
    """The lengths of the file, of its `fmt ` chunk and of its data."""
    write_wav(tmp_path / "a.wav", SOUND)
    data = bytearray((tmp_path / "a.wav").read_bytes())
    data[place : place + 4] = length.to_bytes(4, "little")
    (tmp_path / "a.wav").write_bytes(data)
    settings = LogMel.of(sample_rate=2000, seconds=0.1, window_s=0.02, hop_s=0.01, mels=4)
    with contextlib.suppress(DataError), opened(tmp_path / "a.wav") as recording:  # nothing else may be raised
        assert log_mel(recording, settings).shape == (4, 9)
