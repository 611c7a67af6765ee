"""Targets: the devices we compile for and plan against. Data only, read from TOML.

Every number in a profile says where it comes from: `{ value = 8.0e9, source = "datasheet: ..." }`, where the source
begins with `datasheet`, `measurement` or `assumption` (and `detected`, for what the profile `host` reads at load time).
"""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgetrain.errors import UsageError
from edgetrain.files.regular_file import require_regular
from edgetrain.files.texts import parse_toml
from edgetrain.locate import data_path, user_config_dir
from edgetrain.schema import close_to, is_numeric, read_table, setting
from edgetrain.targets.device import Codegen, Device, Gpu, Rates, Storage
from edgetrain.targets.host import HostFacts, read_host
from edgetrain.targets.opencl import OpenclDevice, find_opencl
from edgetrain.units import Bytes

HOST = "host"
OPERATING_SYSTEMS = ("linux", "android", "bare-metal")
SOURCE_KINDS = ("datasheet", "measurement", "assumption")
MEASURED_BY = "measurement: edgetrain targets calibrate"


_DETECTED_CODEGEN: Mapping[str, str] = {
    "codegen.vector_bits": "detected: CPU flags",
    "codegen.vector_registers": "detected: CPU flags",
    "codegen.cores": "detected: affinity, or the cgroup's limit where that is less",
    "codegen.cache_bytes": "detected: the second-level cache of a core",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a user names with `--target`: a system with its devices. Profiles describe one device so far."""

    name: str
    summary: str
    os: str
    note: str  # what a user must know before believing the numbers
    devices: tuple[Device, ...]
    sources: Mapping[str, str]  # where each number comes from, by its key in the profile

    @property
    def device(self) -> Device:
        """The one that trains."""
        return self.devices[0]

    @property
    def is_host(self) -> bool:
        """Whether programs for it run on this machine."""
        return self.device.is_here

    @property
    def rates_basis(self) -> str:
        """What the rate of arithmetic, and so every promised second, rests on: `measured on 2026-01-31`, `assumed`."""
        source = self.sources.get("flops_per_s", "")
        if source.startswith(MEASURED_BY):
            return f"measured on {source.rpartition(' ')[2]}"
        return {"measurement": "measured", "datasheet": "datasheet"}.get(source.partition(":")[0], "assumed")

    def with_device(self, **changes: Any) -> Target:
        """The target with these fields of its device changed."""
        return dataclasses.replace(self, devices=(dataclasses.replace(self.device, **changes), *self.devices[1:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """The keys of a profile that stand above its tables and rates."""

    summary: str = setting()
    os: str = setting(choices=OPERATING_SYSTEMS)
    note: str = setting("")
    memory_bytes: Bytes = setting(above=0)  # noqa: RUF009


# What profiles said before and nothing read: files that `targets calibrate` wrote still have them.
_RETIRED = frozenset({"accelerator", "idle_w"})
_TABLES: Mapping[str, type] = {"codegen": Codegen, "storage": Storage, "gpu": Gpu}


def list_targets() -> tuple[str, ...]:
    """The names of the profiles that come with edgetrain, sorted."""
    return tuple(sorted(path.stem for path in data_path("targets").glob("*.toml")))


def list_user_targets(folder: Path | None = None) -> tuple[str, ...]:
    """The names of the profiles that the user keeps, sorted. One called as a shipped one takes its place."""
    return tuple(sorted(path.stem for path in user_targets_dir(folder).glob("*.toml")))


def user_targets_dir(folder: Path | None = None) -> Path:
    return (folder or user_config_dir()) / "targets"


def load_target(name_or_path: str | Path) -> Target:
    """The profile of that name, or in that file. `host` is completed with what this machine is.

    A profile that the user keeps goes before a shipped one; where it is of this machine, it is completed as well.
    A profile of a GPU here is completed with what is found; without any its fallbacks stay, so that it can be shown.
    Raises `UsageError`: for an unknown name with the close ones, for a broken profile with all of its mistakes.
    """
    path = _find_target(name_or_path)
    try:
        data = parse_toml(path.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError) as error:
        raise UsageError(f"target profile {path} is not valid TOML", why=str(error)) from error
    target = parse_target(data, name=path.stem, where=str(path))
    is_of_this_machine = str(name_or_path) == HOST or (target.is_host and path.parent == user_targets_dir())
    if target.is_host and target.device.gpu is not None:
        return complete_gpu(target, read_host(), find_opencl().device)
    return complete_host(target, read_host()) if is_of_this_machine else target


def parse_target(data: Mapping[str, Any], *, name: str, where: str) -> Target:
    """A profile from its parsed TOML. Raises one `UsageError` that lists every mistake."""
    mistakes: list[str] = []
    sources: dict[str, str] = {}
    data = {key: value for key, value in data.items() if key not in _RETIRED}
    for key in ("name", "sources"):
        if key in data:
            mistakes.append(f"`{key}` is not a known key: the file's name and the numbers give it")
    found: dict[str, Any] = dict.fromkeys(_TABLES)
    for table, kind in _TABLES.items():
        if table in data:
            values = _take_sources(kind, data[table], f"{table}.", sources, mistakes)
            found[table] = read_table(kind, values, where=f"{table}.", mistakes=mistakes)
        elif table == "codegen":
            mistakes.append("`codegen` is missing: write a table `[codegen]`")
    top = {key: value for key, value in data.items() if key not in (*_TABLES, "name", "sources")}
    in_rates = {field.name for field in dataclasses.fields(Rates)}
    parts: dict[type, Any] = {}
    for kind, chosen in (
        (_Head, {key: value for key, value in top.items() if key not in in_rates}),
        (Rates, {key: value for key, value in top.items() if key in in_rates}),
    ):
        values = _take_sources(kind, chosen, "", sources, mistakes)
        parts[kind] = read_table(kind, values, where="", mistakes=mistakes)
    if mistakes:
        count = "one mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        raise UsageError(
            f"target profile {where} has {count}:\n" + "\n".join(f"  - {mistake}" for mistake in mistakes),
            fix="correct the file; every profile in `targets/` is a working example",
        )
    head = parts[_Head]
    device = Device(name=name, memory_bytes=head.memory_bytes, rates=parts[Rates], **found)
    return Target(name=name, summary=head.summary, os=head.os, note=head.note, devices=(device,), sources=sources)


def complete_gpu(target: Target, facts: HostFacts, found: OpenclDevice | None) -> Target:
    """The profile of a GPU of this machine with what was found: its memory, and the processor that the driver is for.

    The arena is one buffer, so a device's memory is what it gives in one.
    """
    completed = target.with_device(codegen=_codegen_of(facts))
    sources = {**target.sources, **_DETECTED_CODEGEN}
    if found is not None:
        completed = dataclasses.replace(
            completed.with_device(memory_bytes=Bytes(found.buffer_bytes)),
            summary=f"{found.name}, through OpenCL ({found.driver})",
        )
        sources["memory_bytes"] = "detected: CL_DEVICE_MAX_MEM_ALLOC_SIZE, the most that the device gives in one buffer"
    return dataclasses.replace(completed, sources=sources)


def complete_host(target: Target, facts: HostFacts) -> Target:
    """The profile `host` with what was read from this machine in place of its fallbacks.

    The rate of arithmetic is scaled from the profile's by cores and vector width: the same assumption per lane.
    """
    device = target.device
    codegen, rates = device.codegen, device.rates
    lanes = facts.isa.vector_bits * facts.cores / (codegen.vector_bits * codegen.cores)
    cores = facts.cores / codegen.cores
    is_measured_here = lanes == cores == 1 and target.sources["flops_per_s"].startswith(MEASURED_BY)
    detected = {
        "memory_bytes": "detected: total memory, or the cgroup's limit where that is less",
        "flops_per_s": "detected: the profile's assumption per vector lane, times the lanes and cores found",
        "memory_bytes_per_s": "detected: the profile's assumption per core, times the cores found",
        **_DETECTED_CODEGEN,
    }
    if is_measured_here:
        detected |= {key: target.sources[key] for key in ("flops_per_s", "memory_bytes_per_s")}
    completed = target.with_device(
        memory_bytes=Bytes(facts.memory_bytes),
        rates=dataclasses.replace(
            rates, flops_per_s=rates.flops_per_s * lanes, memory_bytes_per_s=rates.memory_bytes_per_s * cores
        ),
        codegen=_codegen_of(facts),
    )
    return dataclasses.replace(completed, sources={**target.sources, **detected})


def _codegen_of(facts: HostFacts) -> Codegen:
    return Codegen(
        triple="",
        cpu=facts.isa.cpu,
        features=facts.isa.features,
        vector_bits=facts.isa.vector_bits,
        vector_registers=facts.isa.vector_registers,
        cores=facts.cores,
        cache_bytes=facts.cache_bytes,
    )


def _find_target(name_or_path: str | Path) -> Path:
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or "/" in text or text.endswith(".toml"):
        require_regular(Path(text), UsageError)
        if not Path(text).is_file():
            raise UsageError(f"there is no target profile {text}", fix="check the path, or use a name from `targets`")
        return Path(text)
    known = sorted({*list_targets(), *list_user_targets()})
    if text not in known:
        raise UsageError(
            f"there is no target `{text}`{close_to(text, known)}",
            why=f"the targets are {', '.join(known)}",
            fix="use one of them, or the path of a .toml profile",
        )
    kept = user_targets_dir() / f"{text}.toml"
    return kept if kept.is_file() else data_path("targets", f"{text}.toml")


def to_json(target: Target) -> dict[str, Any]:
    """The profile as its file has it: keys of the device at the top, `codegen` and `storage` as tables."""
    device = target.device
    return {
        "name": target.name,
        "summary": target.summary,
        "os": target.os,
        "note": target.note,
        "memory_bytes": device.memory_bytes,
        **dataclasses.asdict(device.rates),
        "codegen": dataclasses.asdict(device.codegen),
        "storage": None if device.storage is None else dataclasses.asdict(device.storage),
        "gpu": None if device.gpu is None else dataclasses.asdict(device.gpu),
        "sources": dict(target.sources),
    }


def to_toml(target: Target) -> str:
    """A profile file that reads back as this target; what was detected is written down as measured."""
    plain = to_json(target)
    tables = {"": plain, **{table: plain.pop(table) for table in _TABLES}}
    lines: list[str] = []
    for table, values in tables.items():
        if values is None:
            continue
        lines += ["", f"[{table}]"] if table else []
        for key, value in values.items():
            source = target.sources.get(f"{table}.{key}" if table else key)
            is_default = source is None and isinstance(value, int | float) and not isinstance(value, bool)
            if key in ("name", "sources") or is_default:
                continue
            lines.append(f"{key} = {_toml_value(value, source)}")
    return "\n".join(lines) + "\n"


def _toml_value(value: object, source: str | None) -> str:
    text = json.dumps(value)  # strings and numbers are written alike
    if source is None:
        return text
    kind, _, rest = source.partition(":")
    source = f"measurement: detected,{rest}" if kind == "detected" else source
    return f"{{ value = {text}, source = {json.dumps(source, ensure_ascii=False)} }}"


def _take_sources(
    kind: type, table: object, where: str, sources: dict[str, str], mistakes: list[str]
) -> dict[str, object]:
    """The table with `{ value, source }` replaced by the value; the sources go to `sources`."""
    if not isinstance(table, Mapping):
        mistakes.append(f"`{where.rstrip('.')}` is `{table}`, expected a table")
        return {}
    hints = typing.get_type_hints(kind)
    values: dict[str, object] = {}
    for key, value in table.items():
        values[key] = value
        if key not in hints or not is_numeric(hints[key]):
            continue
        if not isinstance(value, Mapping) or set(value) != {"value", "source"}:
            mistakes.append(f'`{where}{key}` needs a source: write `{{ value = ..., source = "datasheet: ..." }}`')
            values[key] = value.get("value") if isinstance(value, Mapping) else value
            continue
        source = value["source"]
        if not isinstance(source, str) or source.partition(":")[0] not in SOURCE_KINDS:
            mistakes.append(f"`{where}{key}` has the source `{source}`: begin with one of {', '.join(SOURCE_KINDS)}")
        values[key] = value["value"]
        sources[where + key] = str(source)
    return values
