"""Kernels for a GPU as plain data: the text that the device compiles, and how the driver launches each. No TVM."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

FORMAT = "edgetrain.device-code/1"

Extents = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One function of the text, run by `groups` groups of `threads` threads each.

    `arguments` are positions among the kernel's pointers: what it reads, what it writes, its scratch.
    """

    function: str
    arguments: tuple[int, ...]
    groups: Extents
    threads: Extents


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCode:
    """Every kernel of a program. A kernel is one launch after another."""

    source: str  # OpenCL C
    launches: Mapping[str, tuple[Launch, ...]]  # by the kernel's symbol

    def to_json(self) -> str:
        """Canonical text: the same code gives the same bytes."""
        launches = {symbol: [asdict(launch) for launch in found] for symbol, found in self.launches.items()}
        return json.dumps({"format": FORMAT, "source": self.source, "launches": launches}, indent=1) + "\n"

    @staticmethod
    def from_json(text: str) -> DeviceCode:
        data = json.loads(text)
        assert data["format"] == FORMAT  # from our own build cache, whose keys hold the version that wrote it
        return DeviceCode(
            source=data["source"],
            launches={symbol: tuple(map(_launch, found)) for symbol, found in data["launches"].items()},
        )


def _launch(data: Mapping[str, Any]) -> Launch:
    x, y, z = data["groups"]
    u, v, w = data["threads"]
    return Launch(function=data["function"], arguments=tuple(data["arguments"]), groups=(x, y, z), threads=(u, v, w))
