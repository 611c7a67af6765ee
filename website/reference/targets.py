"""Every shipped device profile, each number with its source: from `targets/*.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from edgetrain.locate import data_path
from edgetrain.targets.profile import list_targets
from website.reference.table import code, table

_INTRODUCTION = """\
# Target profiles

Every device that `--target` knows by name, written from its profile. Each number says where it comes from. Memory is
exact; most rates are assumptions, until `edgetrain targets calibrate` measures them on your machine. What profiles are
used for, and how to write one: [targets](../targets.md).
"""


def page() -> str:
    """An overview, then a section for each profile."""
    profiles = {name: _profile(name) for name in list_targets()}
    overview = table(
        ("target", "device", "memory"),
        ((f"[`{name}`](#{name})", profile["summary"], _memory(profile)) for name, profile in profiles.items()),
    )
    return "\n".join((_INTRODUCTION, overview, *(_section(name, profile) for name, profile in profiles.items())))


def _profile(name: str) -> Mapping[str, Any]:
    return tomllib.loads(data_path("targets", f"{name}.toml").read_text(encoding="utf-8"))


def _memory(profile: Mapping[str, Any]) -> str:
    value = profile["memory_bytes"]["value"]
    return f"{value:,} bytes" if value else "detected"


def _section(name: str, profile: Mapping[str, Any]) -> str:
    parts = [f"## {name}", profile["summary"] + "."]
    if profile.get("note"):
        parts.append(profile["note"])
    parts.append(table(("key", "value", "source"), _rows(profile)))
    return "\n\n".join(parts) + "\n"


def _rows(profile: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str, str]]:
    for key, value in profile.items():
        if key in ("summary", "note"):
            continue
        if isinstance(value, Mapping) and "value" not in value:
            yield from _rows(value, f"{above}{key}.")
        elif isinstance(value, Mapping):
            yield code(above + key), _shown(value["value"]), value["source"]
        else:
            yield code(above + key), _shown(value), ""


def _shown(value: object) -> str:
    match value:
        case bool():
            return code(str(value).lower())
        case int():
            return f"{value:,}"
        case float():
            return f"{value:g}"
    return code(str(value))
