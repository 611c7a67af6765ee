"""Versions of the packages and a hash of edgetrain's own source: part of every cache key."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from edgetrain.files.build_cache import cache_key


def tool_identity() -> dict[str, object]:
    """What built it: package versions and the source of edgetrain itself, so that an old cache never answers."""
    here = Path(__file__).resolve().parents[1]
    roots = (here, here.parent / "tuner" / "edgetrain_tuner", here.parent / "edgetrain_tuner")
    sources = sorted(p for root in roots if root.is_dir() for p in root.rglob("*") if p.suffix in (".py", ".c", ".h"))
    digest = cache_key(*(p.read_bytes() for p in sources))
    return {"source": digest, "versions": dict(tool_versions())}


def tool_versions() -> Mapping[str, str]:
    return {n: metadata.version(n) for n in ("apache-tvm", "apache-tvm-ffi", "onnx", "numpy")}
