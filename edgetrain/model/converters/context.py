"""What a converter gets: one ONNX node with its inputs resolved when asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from onnx import helper

from edgetrain._tvm import dtype_of, relax
from edgetrain.model.model import Array


class CannotConvert(Exception):
    """Why a node cannot be imported; the importer adds the node's name and collects them all."""


class Resolver(Protocol):
    """Gives a value of the walk in the form that a converter wants."""

    def tensor(self, value: Any) -> Any:
        """The Relax expression of `value`. A learned array becomes a parameter here, and only here."""

    def known(self, value: Any) -> Array | None:
        """The array that `value` is before the model runs, None where it depends on data."""

    def require(self, expr: Any, lowest: int, highest: int) -> None:
        """Notes that every element of `expr`, whole numbers, must be from `lowest` to `highest`."""


@dataclass(frozen=True, kw_only=True)
class NodeContext:
    """One node. Input `i` is a tensor to compute with (`input`) or an array to read (`known_input`)."""

    node: Any
    builder: Any
    values: Sequence[Any]  # None for an omitted optional input
    resolver: Resolver
    opset: int
    rebound_batch: int | None = None  # the batch that replaced the file's fixed 1

    @property
    def inputs(self) -> list[Any]:
        """Every input, for ops that have no optional ones: TVM crashes on a list that holds None."""
        return [self.required(i) for i in range(len(self.values))]

    def attribute(self, name: str, default: Any) -> Any:
        for attribute in self.node.attribute:
            if attribute.name == name:
                value = helper.get_attribute_value(attribute)
                return value.decode() if isinstance(value, bytes) else value
        return default

    def has(self, index: int) -> bool:
        return index < len(self.values) and self.values[index] is not None

    def input(self, index: int) -> Any:
        return self.resolver.tensor(self.values[index]) if self.has(index) else None

    def required(self, index: int) -> Any:
        """As `input`. Raises `CannotConvert` where it is omitted."""
        if not self.has(index):
            raise CannotConvert(f"its input {index} is missing")
        return self.input(index)

    def known_input(self, index: int) -> Array | None:
        return self.resolver.known(self.values[index]) if self.has(index) else None

    def integers(self, index: int, what: str) -> list[int] | None:
        """Input `index` as integers, None where it is omitted. Raises `CannotConvert` where it depends on data."""
        value = self.known_input(index)
        if value is None:
            if self.has(index):
                raise CannotConvert(f"its {what} depend on data; they must be constants")
            return None
        return [int(v) for v in np.atleast_1d(value).reshape(-1)]

    def integers_or_attribute(self, index: int, name: str) -> list[int] | None:
        """As `integers`, from the attribute of that name where an older opset had one."""
        value = self.integers(index, name)
        attribute = self.attribute(name, None)
        return [int(v) for v in attribute] if value is None and attribute is not None else value

    def require_index(self, index: int, size: int, *, from_end: bool = True) -> None:
        """Input `index` holds places among `size` elements; with `from_end` a negative one counts from the end.

        What of it the caller feeds is checked before the model runs.
        """
        self.resolver.require(self.input(index), -size if from_end else 0, size - 1)

    def emit(self, expr: Any) -> Any:
        return self.builder.emit(expr)

    def number(self, value: float, like: Any) -> Any:
        """A scalar constant of the type of `like`."""
        return relax.const(value, dtype_of(like))


Converter = Callable[[NodeContext], Any]


def unary(emit_one: Callable[[Any], Any]) -> Converter:
    return lambda context: context.emit(emit_one(context.required(0)))


def binary(emit_pair: Callable[[Any, Any], Any]) -> Converter:
    def convert(context: NodeContext) -> Any:
        one, two = context.required(0), context.required(1)
        if dtype_of(one) != dtype_of(two):
            one, two = _as_float(context, one, two), _as_float(context, two, one)
        return context.emit(emit_pair(one, two))

    return convert


def _as_float(context: NodeContext, value: Any, other: Any) -> Any:
    """In ONNX both have one type; a float meets an integer only where a quantised op became a float one."""
    is_integer = "int" in dtype_of(value) and dtype_of(other).startswith("float")
    return context.emit(relax.op.astype(value, dtype_of(other))) if is_integer else value
