"""`edgetrain targets`: the devices there are profiles of, and this machine measured."""

from __future__ import annotations

import argparse
import datetime
import json
import re
from typing import Any

from edgetrain.cli.command import Verb, table
from edgetrain.cli.console import Console
from edgetrain.cli.request import DEFAULT_RECIPE
from edgetrain.cli.stage_progress import StageProgress
from edgetrain.errors import UsageError
from edgetrain.targets.profile import (
    HOST,
    Target,
    list_targets,
    list_user_targets,
    load_target,
    to_json,
    to_toml,
    user_targets_dir,
)
from edgetrain.units import show_bytes_both

_CALIBRATE = "calibrate"


def run(arguments: argparse.Namespace, console: Console) -> int:
    if arguments.words[:1] == [_CALIBRATE]:
        return _calibrate(arguments, console)
    if len(arguments.words) > 1:
        raise UsageError(
            f"`{arguments.words[0]}` and `{arguments.words[1]}` are two targets",
            fix="see one with `edgetrain targets NAME`",
        )
    if arguments.words:
        target = load_target(arguments.words[0])
        console.data(json.dumps(to_json(target), indent=1) + "\n" if console.as_json else show(target))
        return 0
    targets = [load_target(name) for name in sorted({*list_targets(), *list_user_targets()})]
    if console.as_json:
        console.data(json.dumps([to_json(target) for target in targets], indent=1) + "\n")
        return 0
    width = max(len(t.rates_basis) for t in targets)
    rows = [
        (t.name, f"{show_bytes_both(t.device.memory_bytes):<20}  {t.rates_basis:<{width}}  {t.summary}")
        for t in targets
    ]
    console.data(table(rows, indent=0) + "\n")
    return 0


def _calibrate(arguments: argparse.Namespace, console: Console) -> int:
    """Measures this machine and keeps the profile where `load_target` looks first."""
    from edgetrain.files.atomic_file import replaced_file
    from edgetrain.locate import user_cache_dir
    from edgetrain.pipeline.job import Job
    from edgetrain.recipes import load_recipe
    from edgetrain.tuning.calibrate import calibrate

    name = arguments.words[1] if len(arguments.words) > 1 else HOST
    _require_own_name(name)
    with StageProgress(console) as stages:
        job = Job(recipe=load_recipe(DEFAULT_RECIPE), target=load_target(HOST), progress=stages)
        report = calibrate(
            job,
            name=name,
            today=datetime.date.today().isoformat(),
            folder=user_cache_dir(),
            inform=console.say,
        )
    path = user_targets_dir() / f"{name}.toml"
    with replaced_file(path, is_shared=True) as file:
        file.write(to_toml(report.target).encode())
    if console.as_json:
        console.data(json.dumps({**report.to_json(), "profile": str(path)}, indent=1) + "\n")
    else:
        console.data(f"{report.to_text()}\nwrote {path}\n")
    console.say(f"hint: `--target {name}` plans with these rates; delete the file to undo this")
    return 0


def _require_own_name(name: str) -> None:
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name) or name == _CALIBRATE:
        raise UsageError(f"`{name}` cannot be the name of a target", fix="use small letters, digits, `-`, `_` and `.`")
    if name != HOST and name in list_targets():
        raise UsageError(
            f"`{name}` is the profile of another device",
            why="what is measured here says nothing about it",
            fix=f"run `edgetrain targets {_CALIBRATE}` for this machine, or choose another name",
        )


def show(target: Target) -> str:
    """Every value of a profile, each number with its source below it."""
    plain: dict[str, Any] = to_json(target)
    lines = [f"{target.name}: {target.summary}", f"rates: {target.rates_basis}"]
    if target.note:
        lines.append(f"note: {target.note}")
    lines.append("")
    tables = {"": plain, "codegen.": plain.pop("codegen"), "storage.": plain.pop("storage") or {}}
    tables["gpu."] = plain.pop("gpu") or {}
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
    description=(
        "Lists the device profiles, or shows one: every number with where it comes from.\n\n"
        "`calibrate` measures this machine (kernels of a few typical programs, and the disk) and keeps the rates as "
        "your own profile `host`, or under another name. Plans then use measured rates instead of assumed ones."
    ),
    words="[NAME | calibrate [NAME]]",
    most_words=2,
    examples=(
        "edgetrain targets",
        "edgetrain targets jetson",
        "edgetrain targets host --json",
        "edgetrain targets calibrate",
    ),
    run=run,
)
