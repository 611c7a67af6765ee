"""Entries for the tests of the cache: one whole one, and what can be changed in it."""

from __future__ import annotations

import dataclasses
from typing import Any

from edgetrain_tuner.cache.entry import Check, Entry, Measurement, Provenance, Target, Versions, Workload
from edgetrain_tuner.cache.schedules import RuleSchedule

HOST = Target(isa="x86-64", cpu="znver3", vector_bits=256, vector_registers=16, cores=2, cache_bytes=32 << 20)
BOARD = Target(isa="aarch64", cpu="cortex-a72", vector_bits=128, vector_registers=32, cores=4, cache_bytes=1 << 20)


def hash_of(number: int) -> str:
    return f"{number:064x}"


def measurement(seconds: float = 1e-3, *, machine: int = 1, when: str = "2026-01-31", n: int = 5) -> Measurement:
    return Measurement(seconds=seconds, default_seconds=2e-3, n=n, machine=f"{machine:016x}", when=when)


def entry(
    number: int = 0, *, class_: int = 1, family: int = 2, tile: tuple[int, ...] = (6, 16), **changes: Any
) -> Entry:
    """Another `number` is another id of the same class."""
    whole = Entry(
        workload=Workload(
            class_=hash_of(class_),
            family=hash_of(family),
            name="contraction s1 i3 j1 k3",
            dims=(384, 512, 128 + number),
            dtype="float32",
            operations=50331648,
            bytes=1179648,
        ),
        target=HOST,
        schedule=RuleSchedule(rule="packed-product", parameters={"tile": tile, "threads": (2,)}),
        versions=Versions(tvm="0.27.0.post1", rules=1),
        check=Check(largest_error=1.5e-6, against="unscheduled"),
        outcome="faster",
        measurements=(measurement(),),
        provenance=Provenance(model="digits", who="ada", tool="edgetrain 0.1.0"),
    )
    return dataclasses.replace(whole, **changes)
