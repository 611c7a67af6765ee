"""The training graph as plain data: what the planner, the program and the reports read. No TVM here.

A `TrainGraph` holds tensors and functions. A function is a list of ops in an order that is valid as it stands:
every op reads tensors that were written before it, and an op that updates a tensor in place comes after every
other reader of the old value. Ops call kernels with pointers to: reads, then writes, then scratch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from edgetrain.errors import InternalError
from edgetrain.files.texts import parse_json
from edgetrain.value_bounds import InputBounds, PartBounds, from_plain, to_plain

FORMAT = "edgetrain.graph/1"
ALIGNMENT_BYTES = 64  # a cache line, and the widest vector load of a processor

# The words of the contract between graph and run: functions of a program, and tensors that the host reads and writes.
STEP = "step"  # forward, loss, backward and, unless gradients accumulate, the update
EVALUATE = "evaluate"  # forward alone
APPLY = "apply"  # the update, where gradients accumulate
LABELS = "train.labels"
LOSS = "train.loss"
LEARNING_RATE = "train.learning_rate"
FIRST_CORRECTION = "train.first_correction"  # 1 − β₁ᵗ, of Adam
SECOND_CORRECTION = "train.second_correction"  # 1 − β₂ᵗ


def evaluated(output: str) -> str:
    """The tensor in which `evaluate` leaves the model's output of that ONNX name."""
    return f"{EVALUATE}.{output}"


DTYPE_BYTES: Mapping[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}

# The types of inputs that may have bounds, labels and places in a table, and of those of which parts may.
BOUNDED_DTYPES = ("int64", "int32", "int16", "int8", "uint8")
PART_BOUNDED_DTYPES = (*BOUNDED_DTYPES, "float32")


class Role(StrEnum):
    """Why a tensor exists. All but `TEMPORARY` live for the whole run, in the persistent part of the arena."""

    PARAMETER = "parameter"  # trained, or frozen but part of the model; saved
    STATE = "state"  # optimizer state, running statistics, gradient accumulators; saved
    CONSTANT = "constant"  # never written; shipped with the program
    INPUT = "input"  # written by the host before a call
    OUTPUT = "output"  # read by the host after a call
    TEMPORARY = "temporary"  # activations and gradients: what the planner decides about


class Phase(StrEnum):
    FORWARD = "forward"
    LOSS = "loss"
    BACKWARD = "backward"
    UPDATE = "update"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Role
    bounds: InputBounds | None = None  # of what the host may write, where kernels care

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def rows(self) -> int:
        """The samples of a batch, for an input."""
        return self.shape[0] if self.shape else 1

    @property
    def sample_elements(self) -> int:
        return math.prod(self.shape[1:])

    @property
    def nbytes(self) -> int:
        return self.elements * DTYPE_BYTES[self.dtype]

    @property
    def is_temporary(self) -> bool:
        return self.role is Role.TEMPORARY


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One kernel call. Writing a tensor that is not temporary happens in place, and exactly once a step."""

    name: str  # unique within its function
    kernel: str  # C symbol
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    scratch_bytes: tuple[int, ...] = ()
    phase: Phase
    flops: int = 0
    source: str = ""  # what a person would call it: the ONNX node or the relax op

    @property
    def total_scratch_bytes(self) -> int:
        return sum(self.scratch_bytes)


@dataclass(frozen=True, kw_only=True)
class TrainGraph:
    """Tensors by name and functions by name: `step`, `evaluate`, and `apply` when gradients accumulate.

    Every tensor begins at a multiple of `alignment_bytes`, in the arena and in files; kernels of a GPU need more.
    """

    name: str
    tensors: Mapping[str, Tensor]
    functions: Mapping[str, tuple[Op, ...]]
    alignment_bytes: int = ALIGNMENT_BYTES

    @cached_property
    def persistent(self) -> tuple[Tensor, ...]:
        """Tensors that live for the whole run, saved ones (parameters, state) first, in a fixed order."""
        order = {Role.PARAMETER: 0, Role.STATE: 1, Role.CONSTANT: 2, Role.INPUT: 3, Role.OUTPUT: 4}
        kept = [t for t in self.tensors.values() if not t.is_temporary]
        return tuple(sorted(kept, key=lambda t: order[t.role]))

    def by_role(self, role: Role) -> tuple[Tensor, ...]:
        return tuple(t for t in self.tensors.values() if t.role is role)

    def temporaries(self, function: str) -> tuple[Tensor, ...]:
        """The temporary tensors of one function, in the order they are first written."""
        names = dict.fromkeys(n for op in self.functions[function] for n in op.writes)
        return tuple(self.tensors[n] for n in names if self.tensors[n].is_temporary)

    def bounded_inputs(self, function: str) -> tuple[Tensor, ...]:
        """The inputs of this function that have bounds, in the order of `persistent`."""
        read = {name for op in self.functions[function] for name in op.reads}
        return tuple(t for t in self.persistent if t.bounds is not None and t.name in read)

    @property
    def input_bounds(self) -> Mapping[str, InputBounds]:
        """The bounds of those that have some, by name; labels are one of them."""
        return {tensor.name: tensor.bounds for tensor in self.persistent if tensor.bounds is not None}

    def bytes_moved(self, op: Op) -> int:
        return sum(self.tensors[n].nbytes for n in (*op.reads, *op.writes)) + op.total_scratch_bytes

    def op(self, function: str, name: str) -> Op:
        return self._ops_by_name[function][name]

    @cached_property
    def _ops_by_name(self) -> Mapping[str, Mapping[str, Op]]:
        return {f: {op.name: op for op in ops} for f, ops in self.functions.items()}


def validate(graph: TrainGraph) -> None:
    """Checks the invariants of the module's docstring. Raises `InternalError` naming the first op that breaks one."""
    for tensor in graph.tensors.values():
        if tensor.bounds is not None and not _can_have(tensor, tensor.bounds):
            raise InternalError(f"the {tensor.role} `{tensor.name}` of type {tensor.dtype} cannot have bounds")
    for function, ops in graph.functions.items():
        written: set[str] = set()
        updated: set[str] = set()
        names: set[str] = set()
        for op in ops:
            where = f"{function}: op `{op.name}`"
            if op.name in names:
                raise InternalError(f"{where} is defined twice")
            names.add(op.name)
            for name in (*op.reads, *op.writes):
                if name not in graph.tensors:
                    raise InternalError(f"{where} names the unknown tensor `{name}`")
            for name in op.reads:
                if graph.tensors[name].is_temporary and name not in written:
                    raise InternalError(f"{where} reads `{name}` before anything wrote it")
                if name in updated and graph.tensors[name].role is not Role.OUTPUT:
                    raise InternalError(f"{where} reads `{name}` after its update in place")
            for name in op.writes:
                tensor = graph.tensors[name]
                if tensor.is_temporary and name in written:
                    raise InternalError(f"{where} writes `{name}` a second time")
                if tensor.role in (Role.CONSTANT, Role.INPUT):
                    raise InternalError(f"{where} writes the {tensor.role} `{name}`")
                (written if tensor.is_temporary else updated).add(name)


def _can_have(tensor: Tensor, bounds: InputBounds) -> bool:
    if not isinstance(bounds, PartBounds):
        return tensor.role is Role.INPUT and tensor.dtype in BOUNDED_DTYPES
    is_whole = tensor.dtype in BOUNDED_DTYPES
    limits = [limit for region in bounds.regions for limit in (region.lowest, region.highest)]
    return (
        tensor.role is Role.INPUT
        and tensor.dtype in PART_BOUNDED_DTYPES
        and all(region.end <= tensor.sample_elements for region in bounds.regions)
        and not (is_whole and any(isinstance(limit, float) for limit in limits))
    )


def to_json(graph: TrainGraph) -> str:
    """Canonical text: the same graph gives the same bytes."""
    data = {
        "format": FORMAT,
        "name": graph.name,
        **({} if graph.alignment_bytes == ALIGNMENT_BYTES else {"alignment_bytes": graph.alignment_bytes}),
        "tensors": [
            {
                "name": t.name,
                "shape": list(t.shape),
                "dtype": t.dtype,
                "role": str(t.role),
                **({} if t.bounds is None else {"bounds": to_plain(t.bounds)}),
            }
            for t in graph.tensors.values()
        ],
        "functions": {
            f: [
                {
                    "name": op.name,
                    "kernel": op.kernel,
                    "reads": list(op.reads),
                    "writes": list(op.writes),
                    "scratch_bytes": list(op.scratch_bytes),
                    "phase": str(op.phase),
                    "flops": op.flops,
                    "source": op.source,
                }
                for op in ops
            ]
            for f, ops in graph.functions.items()
        },
    }
    return json.dumps(data, indent=1) + "\n"


def from_json(text: str) -> TrainGraph:
    """The inverse of `to_json`. Raises `InternalError` for another format or a broken graph."""
    try:
        graph = _read(parse_json(text))
        validate(graph)
        return graph
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InternalError(f"the graph is broken: {type(error).__name__}: {error}") from error


def _read(data: Mapping[str, Any]) -> TrainGraph:
    if data.get("format") != FORMAT:
        raise InternalError(f"graph has format `{data.get('format')}`, this version reads `{FORMAT}`")
    tensors = {
        t["name"]: Tensor(
            name=t["name"],
            shape=_counts(t["shape"]),
            dtype=_known_type(t["dtype"]),
            role=Role(t["role"]),
            # Absent in graphs of programs from before there were bounds: what is fed to them is not checked.
            bounds=None if t.get("bounds") is None else from_plain(t["bounds"]),
        )
        for t in data["tensors"]
    }
    functions = {
        f: tuple(
            Op(
                name=o["name"],
                kernel=o["kernel"],
                reads=tuple(o["reads"]),
                writes=tuple(o["writes"]),
                scratch_bytes=_counts(o["scratch_bytes"]),
                phase=Phase(o["phase"]),
                flops=o["flops"],
                source=o["source"],
            )
            for o in ops
        )
        for f, ops in data["functions"].items()
    }
    (alignment_bytes,) = _counts([data.get("alignment_bytes", ALIGNMENT_BYTES)])
    if alignment_bytes == 0 or alignment_bytes % ALIGNMENT_BYTES != 0:
        raise ValueError(f"tensors cannot be aligned to {alignment_bytes} bytes")
    return TrainGraph(name=data["name"], tensors=tensors, functions=functions, alignment_bytes=alignment_bytes)


def _counts(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list) or not all(type(value) is int and value >= 0 for value in values):
        raise ValueError(f"{values!r} are no sizes")
    return tuple(values)


def _known_type(dtype: Any) -> str:
    if dtype not in DTYPE_BYTES:
        raise ValueError(f"unknown dtype `{dtype}`")
    return str(dtype)


def without_bounds(graph: TrainGraph) -> TrainGraph:
    """The same computation: bounds say what may be fed to it, not what it does with that."""
    tensors = {name: replace(tensor, bounds=None) for name, tensor in graph.tensors.items()}
    return replace(graph, tensors=tensors)
