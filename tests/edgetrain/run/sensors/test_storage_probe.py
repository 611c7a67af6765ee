from __future__ import annotations

from pathlib import Path

from edgetrain.run.sensors.storage_probe import probe_storage


def test_a_probe_leaves_nothing_behind_and_finds_speeds(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    speed = probe_storage(folder, nbytes=1 << 20, rounds=2)
    assert speed.read_bytes_per_s > 0
    assert speed.write_bytes_per_s > 0
    assert 0 < speed.latency_s < 1.0
    assert not list(folder.iterdir())
