"""`edgetrain targets`: the devices there are profiles of."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

from edgetrain.cli.command import Verb, table
from edgetrain.cli.console import Console
from edgetrain.targets import Target, list_targets, load_target
from edgetrain.units import show_bytes_both


def run(arguments: argparse.Namespace, console: Console) -> int:
    if arguments.words:
        target = load_target(arguments.words[0])
        console.data(json.dumps(dataclasses.asdict(target), indent=1) + "\n" if console.as_json else show(target))
        return 0
    targets = [load_target(name) for name in list_targets()]
    if console.as_json:
        console.data(json.dumps([dataclasses.asdict(target) for target in targets], indent=1) + "\n")
        return 0
    rows = [(t.name, f"{show_bytes_both(t.memory_bytes):<20}  {t.summary}") for t in targets]
    console.data(table(rows, indent=0) + "\n")
    return 0


def show(target: Target) -> str:
    """Every value of a profile, each number with its source below it."""
    plain: dict[str, Any] = dataclasses.asdict(target)
    lines = [f"{target.name}: {target.summary}"]
    if target.note:
        lines.append(f"note: {target.note}")
    lines.append("")
    tables = {"": plain, "codegen.": plain.pop("codegen"), "storage.": plain.pop("storage") or {}}
    for key in ("name", "summary", "note", "sources"):
        del plain[key]
    for prefix, values in tables.items():
        for key, value in values.items():
            is_size = key.endswith("_bytes")
            lines.append(f"{prefix}{key} = {show_bytes_both(value) if is_size else _plain(value)}")
            if prefix + key in target.sources:
                lines.append(f"    {target.sources[prefix + key]}")
    return "\n".join(lines) + "\n"


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


VERB = Verb(
    name="targets",
    summary="list the devices that plans and programs can be made for",
    description="Lists the device profiles, or shows one: every number with where it comes from.",
    words="[NAME]",
    most_words=1,
    examples=("edgetrain targets", "edgetrain targets jetson", "edgetrain targets host --json"),
    run=run,
)
