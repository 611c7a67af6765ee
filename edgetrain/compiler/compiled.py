"""The compiler's answer: a folder with a training graph, its kernels and its first values, opened file by file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgetrain.compiler.device_code import DeviceCode
from edgetrain.compiler.schedules import SCHEDULES, Choices, KernelRecord, ScheduleChoice, read_records
from edgetrain.compiler.search.trials import NOTHING_TRIED, TrialReport
from edgetrain.files.build_cache import cache_key
from edgetrain.graph.ir import TrainGraph, from_json, to_json, without_bounds
from edgetrain.graph.persistent import SHIPPED_ROLES, layout_persistent
from edgetrain.graph.traffic import Traffic
from edgetrain.toolchain.object_archive import SUFFIX

GRAPH = "graph.json"
INITIAL = "initial.bin"
FACTS = "facts.json"
MODEL = "model.onnx"


def kernels_file(name: str) -> str:
    return f"kernels-{name}{SUFFIX}"


def device_code_file(name: str) -> str:
    """Of a device whose kernels a GPU runs."""
    return f"kernels-{name}.json"


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """The compiler's answer: a graph whose ops are kernels in an object file."""

    directory: Path
    key: str
    choices: Choices | None = None  # what was asked for; None: as whoever compiled it first
    trials: TrialReport = NOTHING_TRIED  # what was tried for it just now

    @cached_property
    def graph(self) -> TrainGraph:
        return from_json((self.directory / GRAPH).read_text(encoding="utf-8"))

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """What people ask about a model: inputs, outputs, trained parameters, versions."""
        facts: dict[str, Any] = json.loads((self.directory / FACTS).read_text(encoding="utf-8"))
        return facts

    @property
    def traffic(self) -> Traffic:
        """What a step moves, and would move without fusion."""
        return Traffic.from_json(self.facts["traffic"])

    @cached_property
    def schedules(self) -> Mapping[str, KernelRecord]:
        """Of each kernel, by its symbol. Where a schedule comes from is told as it was asked for this time."""
        records = read_records(self.directory / SCHEDULES)
        if self.choices is None:
            return records
        asked = self.choices
        return {symbol: record.asked_as(asked.get(symbol, ScheduleChoice())) for symbol, record in records.items()}

    def identity(self, name: str) -> str:
        """A hash of what a run's numbers depend on: the graph, and the kernels compiled under that name.

        Unlike `key` it survives a new version of edgetrain that compiles to the same code, so a run can be resumed.
        """
        return cache_key(to_json(without_bounds(self.graph)).encode(), self.kernels(name).read_bytes())

    @property
    def model(self) -> Path:
        """The ONNX file that was compiled, with its new head where one was asked for."""
        return self.directory / MODEL

    def kernels(self, name: str) -> Path:
        """The kernels compiled under that name: objects, or code for a GPU."""
        for_gpu = self.directory / device_code_file(name)
        return for_gpu if for_gpu.is_file() else self.directory / kernels_file(name)

    def device_code(self, name: str) -> DeviceCode:
        """The kernels under that name, of a device whose kernels a GPU runs."""
        return DeviceCode.from_json((self.directory / device_code_file(name)).read_text(encoding="utf-8"))

    def initial(self) -> dict[str, npt.NDArray[Any]]:
        """Initial parameters, state and constants, mapped from the file: nothing is read before it is used."""
        layout = layout_persistent(self.graph)
        path = self.directory / INITIAL
        raw = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
        values = {}
        for tensor in self.graph.persistent:
            if tensor.role in SHIPPED_ROLES:
                start = layout.offsets[tensor.name]
                part = raw[start : start + tensor.nbytes]
                values[tensor.name] = part.view(tensor.dtype).reshape(tensor.shape)
        return values
