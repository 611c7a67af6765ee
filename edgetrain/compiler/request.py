"""What the compiler is asked for, as plain data that goes to its process and into cache keys. No TVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from edgetrain.compiler.schedules import Choices, ScheduleChoice
from edgetrain.errors import ModelError
from edgetrain.files.build_cache import file_sha256
from edgetrain.files.regular_file import require_regular
from edgetrain.graph.options import TrainOptions
from edgetrain.model.zoo_weights import packages_of_weights
from edgetrain.targets.device import Codegen, Gpu

ZOO = "zoo:"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Where the model comes from: a path, or `zoo:NAME`; what of it is trained; a new head when `classes` is set."""

    source: str
    output: str = ""  # the output that is trained; empty: found by graph analysis
    classes: int | None = None
    head: str = ""  # the layer that `classes` replaces; empty: found by graph analysis
    fold_batchnorm: bool = False
    separate: tuple[str, ...] = ()  # globs over shared tensors: one for each node that reads it
    tie: tuple[str, ...] = ()  # globs over shared tensors: one for all of a role
    seed: int = 0

    def identity(self) -> dict[str, object]:
        """Values that change when the model does. Raises `ModelError` when the file cannot be read."""
        described: dict[str, object] = asdict(self)
        if self.source.startswith(ZOO):
            packages = packages_of_weights(self.source.removeprefix(ZOO))
            return {**described, "packages": {p.name: p.version for p in packages}}
        from edgetrain.model.load import external_files  # onnx loads here, where there is a file to read

        path = Path(self.source)
        require_regular(path, ModelError)
        files = [path, *(f for f in external_files(path) if f.is_file())]
        try:
            return {**described, "source": "", "files": [file_sha256(f) for f in files]}
        except OSError as error:
            raise ModelError(
                f"cannot read the model `{path}`",
                why=str(error),
                fix="give the path of an .onnx file, or a recipe name (`edgetrain recipes` lists them)",
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileRequest:
    """All the compiler needs to know: the model, what of it is trained, and whom kernels are for.

    Kernels are scheduled for `codegen`, once, and compiled for each of `archives`, by the name of the archive: the
    target, and this host where plans of another target run here. None: no kernel is compiled. With `gpu` kernels are
    scheduled for it, and `codegen` is the processor that its driver is compiled for.
    """

    model: ModelSource
    options: TrainOptions
    codegen: Codegen
    gpu: Gpu | None = None
    archives: Mapping[str, Codegen] = field(default_factory=dict)
    schedules: Choices | None = None  # None: the best known ones

    def to_json(self) -> dict[str, Any]:
        schedules = None if self.schedules is None else {s: c.to_json() for s, c in self.schedules.items()}
        plain = asdict(replace(self, schedules=None))
        return {**plain, "options": self.options.to_json(), "schedules": schedules}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CompileRequest:
        schedules = data["schedules"]
        if schedules is not None:
            schedules = {symbol: ScheduleChoice.from_json(choice) for symbol, choice in schedules.items()}
        return cls(
            model=ModelSource(**data["model"]),
            options=TrainOptions.from_json(data["options"]),
            codegen=Codegen(**data["codegen"]),
            gpu=None if data["gpu"] is None else Gpu(**data["gpu"]),
            archives={name: Codegen(**codegen) for name, codegen in data["archives"].items()},
            schedules=schedules,
        )
