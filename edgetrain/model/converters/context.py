"""What a converter gets: one ONNX node with its inputs resolved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import helper

from edgetrain._tvm import dtype_of, relax
from edgetrain.model.model import Array


class CannotConvert(Exception):
    """Why a node cannot be imported; the importer adds the node's name and collects them all."""


@dataclass(frozen=True, kw_only=True)
class NodeContext:
    """One node with its inputs resolved: Relax expressions, and arrays where a value is known."""

    node: Any
    builder: Any
    inputs: Sequence[Any]  # relax.Expr, or None for an omitted optional input
    known: Sequence[Array | None]

    def attribute(self, name: str, default: Any) -> Any:
        for attribute in self.node.attribute:
            if attribute.name == name:
                value = helper.get_attribute_value(attribute)
                return value.decode() if isinstance(value, bytes) else value
        return default

    def input(self, index: int) -> Any:
        return self.inputs[index] if index < len(self.inputs) else None

    def known_input(self, index: int) -> Array | None:
        return self.known[index] if index < len(self.known) else None

    def integers(self, index: int, what: str) -> list[int] | None:
        """Input `index` as integers, None where it is omitted. Raises `CannotConvert` where it depends on data."""
        value = self.known_input(index)
        if value is None:
            if self.input(index) is not None:
                raise CannotConvert(f"its {what} depend on data; they must be constants")
            return None
        return [int(v) for v in np.atleast_1d(value).reshape(-1)]

    def integers_or_attribute(self, index: int, name: str) -> list[int] | None:
        """As `integers`, from the attribute of that name where an older opset had one."""
        value = self.integers(index, name)
        attribute = self.attribute(name, None)
        return [int(v) for v in attribute] if value is None and attribute is not None else value

    def emit(self, expr: Any) -> Any:
        return self.builder.emit(expr)

    def number(self, value: float, like: Any) -> Any:
        """A scalar constant of the type of `like`."""
        return relax.const(value, dtype_of(like))


Converter = Callable[[NodeContext], Any]


def unary(emit_one: Callable[[Any], Any]) -> Converter:
    return lambda context: context.emit(emit_one(context.input(0)))


def binary(emit_pair: Callable[[Any, Any], Any]) -> Converter:
    return lambda context: context.emit(emit_pair(context.input(0), context.input(1)))
