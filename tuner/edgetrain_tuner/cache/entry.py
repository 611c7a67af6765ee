"""One schedule that somebody found: for which kernel and target, what it is, how it was checked, how fast it was.

An entry is JSON of at most 4,096 bytes. Its id is the SHA-256 of the canonical JSON of what it claims: workload,
target, schedule, versions, check. What comes in later (measurements, provenance, signature, outcome) is not part of the
id, so that two people who find the same schedule have one entry, and `merge` joins what they know about it.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgetrain_tuner.cache.errors import EntryError
from edgetrain_tuner.cache.fields import (
    Reader,
    Wrong,
    canonical_json,
    choice,
    integer,
    list_of,
    number,
    parse_json,
    read_object,
    text,
)
from edgetrain_tuner.cache.schedules import RuleSchedule, read_schedule

FORMAT = "edgetrain.schedule/1"
MOST_BYTES = 4096
MOST_MEASUREMENTS = 16
ISAS = ("x86-64", "aarch64", "arm", "riscv64")
# From the least to the most hopeful. A merge keeps the most hopeful: hope costs whoever tunes a trial, while one
# machine's failure would hide a schedule from all others.
OUTCOMES = ("failed", "slower", "faster")

# Room for what is not in the id, in its longest form, so that no merge can make an entry too long. What is left over
# is for measurements; how many is a function of the id's part alone, and so the same for everyone who merges.
_ENVELOPE_BYTES = 600
_MEASUREMENT_BYTES = 144
_LEAST_MEASUREMENTS = 4
_MOST_BODY_BYTES = MOST_BYTES - _ENVELOPE_BYTES - _LEAST_MEASUREMENTS * _MEASUREMENT_BYTES

_MOST_TEXT = 64
_PLAIN = r"[ !#-\[\]-~]"  # printable ASCII without `"` and `\`: as long in JSON as it looks
_PLAIN_TEXT = text(rf"{_PLAIN}{{0,{_MOST_TEXT}}}", f"at most {_MOST_TEXT} plain characters")
_HASH = text(r"[0-9a-f]{64}", "64 hex digits")
_COUNT = integer(0, 2**62)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A kernel without its names. `class_` keeps strides and access maps, `family` drops the constants too."""

    class_: str
    family: str
    name: str  # for people: "contraction SSSSRRR"
    dims: tuple[int, ...]
    dtype: str
    operations: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    isa: str
    cpu: str
    vector_bits: int
    vector_registers: int
    cores: int
    cache_bytes: int

    def distance(self, other: Target) -> tuple[int, ...]:
        """How far a schedule has to travel, nearest first; registers weigh more than the name on the chip."""
        pairs = (
            (self.isa, other.isa),
            (self.vector_bits, other.vector_bits),
            (self.vector_registers, other.vector_registers),
            (self.cpu, other.cpu),
            (self.cache_bytes, other.cache_bytes),
            (self.cores, other.cores),
        )
        return tuple(int(mine != theirs) for mine, theirs in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    tvm: str
    rules: int  # the version of what rules and their parameters mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How far the scheduled kernel's numbers were from those of the reference, at most."""

    largest_error: float
    against: str  # "unscheduled" or "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The quickest of `n` runs of the schedule and of the default, in turns on one machine: other work only adds."""

    seconds: float
    default_seconds: float
    n: int
    machine: str  # 16 hex digits, no name
    when: str  # an ISO date

    @property
    def speedup(self) -> float:
        return self.default_seconds / self.seconds

    @property
    def order(self) -> tuple[str, str, float, float, int]:
        return (self.when, self.machine, self.seconds, self.default_seconds, self.n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    model: str
    who: str
    tool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Ed25519 over the id: who signs vouches for what is claimed, not for measurements that others add."""

    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Built here or read by `read_entry`. Only the latter checks ranges: `Store.put` passes through it."""

    workload: Workload
    target: Target
    schedule: RuleSchedule
    versions: Versions
    check: Check
    outcome: str
    measurements: tuple[Measurement, ...] = ()
    provenance: Provenance = Provenance(model="", who="", tool="")
    signature: Signature | None = None

    @property
    def id(self) -> str:
        return hashlib.sha256(canonical_json(self._body()).encode()).hexdigest()

    @property
    def text(self) -> str:
        """The canonical JSON, with the id, so that a changed character is noticed. One line."""
        return canonical_json(self.to_json())

    @property
    def speedup(self) -> float | None:
        """Over the default schedule: the median of what was measured, the lower of two."""
        ratios = sorted(measurement.speedup for measurement in self.measurements)
        return ratios[(len(ratios) - 1) // 2] if ratios else None

    def to_json(self) -> dict[str, object]:
        data = {
            **self._body(),
            "id": self.id,
            "outcome": self.outcome,
            "measurements": [_fields(measurement) for measurement in self.measurements],
            "provenance": _fields(self.provenance),
        }
        if self.signature is not None:
            data["signature"] = _fields(self.signature)
        return data

    def _body(self) -> dict[str, object]:
        workload = _fields(self.workload)
        workload["class"] = workload.pop("class_")
        return {
            "format": FORMAT,
            "workload": workload,
            "target": _fields(self.target),
            "schedule": self.schedule.to_json(),
            "versions": _fields(self.versions),
            "check": _fields(self.check),
        }


def plain_text(words: str) -> str:
    """`words` as provenance or a workload's name may hold them: cut, and `?` for what is no plain character."""
    kept = "".join(c if " " <= c <= "~" and c not in '"\\' else "?" for c in words)
    return kept[:_MOST_TEXT]


def merge(first: Entry, second: Entry) -> Entry:
    """Everything known about one id. Commutative, associative and idempotent, so that the order of merges is no matter.

    Of more measurements than an entry has room for the newest stay. Raises `EntryError` for two different ids.
    """
    if first.id != second.id:
        raise EntryError("two entries are not one", mistakes=(f"their ids are {first.id} and {second.id}",))
    signatures = [entry.signature for entry in (first, second) if entry.signature is not None]
    return dataclasses.replace(
        first,
        outcome=max(first.outcome, second.outcome, key=OUTCOMES.index),
        measurements=_kept((*first.measurements, *second.measurements), _room(first)),
        provenance=max(first.provenance, second.provenance, key=_canonical_fields),
        signature=max(signatures, key=_canonical_fields, default=None),
    )


def read_entry(words: str | bytes) -> Entry:
    """The entry that a text holds. Nothing in it is executed; every field is checked.

    Raises `EntryError` with all that is wrong: size, JSON, types, ranges, unknown keys, an id that is not its own.
    """
    try:
        data = parse_json(_decoded(words))
    except Wrong as wrong:
        raise EntryError("this is no schedule entry", mistakes=(str(wrong),)) from None
    mistakes: list[str] = []
    fields = read_object(data, _parts(mistakes), where="", mistakes=mistakes, optional=_OPTIONAL)
    if fields is None or mistakes:
        raise EntryError("this is no schedule entry", mistakes=tuple(mistakes))
    claimed = fields.pop("id", None)
    del fields["format"]
    entry = Entry(**fields)
    _check_whole(entry, claimed, mistakes)
    if mistakes:
        raise EntryError("this is no schedule entry", mistakes=tuple(mistakes))
    return dataclasses.replace(entry, measurements=_kept(entry.measurements, _room(entry)))


_OPTIONAL = frozenset({"id", "signature"})


def _parts(mistakes: list[str]) -> Mapping[str, Reader]:
    """The readers of an entry's parts; they add their own mistakes, with the full path of the key."""

    def part(kind: type, readers: Mapping[str, Reader], where: str) -> Reader:
        def read(value: object) -> Any:
            fields = read_object(value, readers, where=where, mistakes=mistakes)
            return None if fields is None else kind(**{"class_" if k == "class" else k: v for k, v in fields.items()})

        return read

    def measurements(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) > 2 * MOST_MEASUREMENTS:
            raise Wrong(f"a list of at most {2 * MOST_MEASUREMENTS}")
        return tuple(
            part(Measurement, _MEASUREMENT, f"measurements[{index}]")(item) for index, item in enumerate(value)
        )

    return {
        "format": choice(FORMAT),
        "id": _HASH,
        "workload": part(Workload, _WORKLOAD, "workload"),
        "target": part(Target, _TARGET, "target"),
        "schedule": lambda value: read_schedule(value, mistakes=mistakes),
        "versions": part(Versions, _VERSIONS, "versions"),
        "check": part(Check, _CHECK, "check"),
        "outcome": choice(*OUTCOMES),
        "measurements": measurements,
        "provenance": part(Provenance, _PROVENANCE, "provenance"),
        "signature": part(Signature, _SIGNATURE, "signature"),
    }


def _date(value: object) -> str:
    words: str = text(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "a date like 2026-01-31")(value)
    try:
        datetime.date.fromisoformat(words)
    except ValueError:
        raise Wrong("a date that exists") from None
    return words


_SECONDS = number(1e-9, 1e6)
_WORKLOAD: Mapping[str, Reader] = {
    "class": _HASH,
    "family": _HASH,
    "name": _PLAIN_TEXT,
    "dims": list_of(integer(1, 2**31), most=16),
    "dtype": text(r"[a-z][a-z0-9_]{0,15}", "a type like float32"),
    "operations": _COUNT,
    "bytes": _COUNT,
}
_TARGET: Mapping[str, Reader] = {
    "isa": choice(*ISAS),
    "cpu": text(r"[A-Za-z0-9._+-]{0,40}", "a processor's name"),
    "vector_bits": integer(0, 2**16),
    "vector_registers": integer(0, 2**10),
    "cores": integer(1, 2**16),
    "cache_bytes": _COUNT,
}
_VERSIONS: Mapping[str, Reader] = {
    "tvm": text(r"[0-9A-Za-z.+-]{1,40}", "a version"),
    "rules": integer(0, 2**31),
}
_CHECK: Mapping[str, Reader] = {"largest_error": number(0, 1e300), "against": choice("unscheduled", "default")}
_MEASUREMENT: Mapping[str, Reader] = {
    "seconds": _SECONDS,
    "default_seconds": _SECONDS,
    "n": integer(1, 10**6),
    "machine": text(r"[0-9a-f]{16}", "16 hex digits"),
    "when": _date,
}
_PROVENANCE: Mapping[str, Reader] = {"model": _PLAIN_TEXT, "who": _PLAIN_TEXT, "tool": _PLAIN_TEXT}
_SIGNATURE: Mapping[str, Reader] = {"key": _HASH, "value": text(r"[0-9a-f]{128}", "128 hex digits")}


def _decoded(words: str | bytes) -> str:
    raw = words.encode("utf-8", "surrogatepass") if isinstance(words, str) else words
    if len(raw) > MOST_BYTES:
        raise Wrong(f"{len(raw)} bytes are more than the {MOST_BYTES} of an entry")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Wrong("not UTF-8") from None


def _check_whole(entry: Entry, claimed: str | None, mistakes: list[str]) -> None:
    own = entry.id
    if claimed not in (None, own):
        mistakes.append(f"`id` is {claimed}, but the entry's content has {own}: it was changed or damaged")
    size = _body_bytes(entry)
    if size > _MOST_BODY_BYTES:
        mistakes.append(f"workload, target, schedule, versions and check take {size} bytes of {_MOST_BODY_BYTES}")


def _body_bytes(entry: Entry) -> int:
    return len(canonical_json(entry._body()))


def _room(entry: Entry) -> int:
    free = MOST_BYTES - _ENVELOPE_BYTES - _body_bytes(entry)
    return min(MOST_MEASUREMENTS, free // _MEASUREMENT_BYTES)


def _kept(measurements: tuple[Measurement, ...], room: int) -> tuple[Measurement, ...]:
    return tuple(sorted(set(measurements), key=lambda measurement: measurement.order)[-room:])


def _fields(part: Any) -> dict[str, object]:
    """As `dataclasses.asdict`, which copies deeply and takes most of the time of a lookup."""
    return {name: getattr(part, name) for name in part.__slots__}


def _canonical_fields(part: Provenance | Signature) -> str:
    return canonical_json(_fields(part))
