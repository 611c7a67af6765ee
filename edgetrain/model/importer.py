"""ONNX → Relax. The walk and the errors are ours; converters are ours where TVM's trip, TVM's for the rest."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from tvm.relax.frontend.onnx import onnx_frontend

from edgetrain._tvm import dtype_of, relax, runtime, shape_of
from edgetrain.errors import UnsupportedError
from edgetrain.model.converters import CONVERTERS, CannotConvert, NodeContext
from edgetrain.model.load import ONNX_DOMAINS
from edgetrain.model.model import Array, InputSpec, Model
from edgetrain.model.normalise import NormalGraph, describe, normalise

log = logging.getLogger(__name__)


def import_model(proto: Any, *, name: str, batch: int, shapes: Mapping[str, Sequence[int]] | None = None) -> Model:
    """A `Model` with every dimension a number.

    Raises `UnsupportedError` naming every node that cannot be imported, and `ModelError` as `normalise` does.
    """
    graph = normalise(proto, batch=batch, shapes=shapes)
    _reject_unknown_ops(graph, name)
    builder = relax.BlockBuilder()
    inputs = {n: _variable(n, s, graph.input_dtypes[n]) for n, s in graph.inputs.items()}
    weights = {n: _variable(n, a.shape, str(a.dtype)) for n, a in graph.weights.items()}
    values: dict[str, Any] = {**inputs, **weights}
    sources: dict[str, str] = {}
    problems: list[str] = []
    missing: set[str] = set()  # values that no node could make
    with builder.function("forward", [*inputs.values(), *weights.values()]):
        with builder.dataflow():
            for node in graph.nodes:
                try:
                    if missing.isdisjoint(node.input):
                        _convert_node(node, builder, values, graph, sources)
                    else:
                        missing.update(node.output)
                except CannotConvert as error:
                    problems.append(f"{describe(node)}: {error}")
                    missing.update(node.output)
            if problems:
                builder.emit_output(next(iter(inputs.values())))
            else:
                names = [graph.aliases.get(o, o) for o in graph.outputs]
                outputs = builder.emit_output(relax.Tuple([_value(n, values, graph) for n in names]))
        builder.emit_func_output(next(iter(inputs.values())) if problems else outputs)
    if problems:
        raise _unsupported(name, problems)
    module = builder.get()
    log.info("imported %s: %d nodes, %d parameters", name, len(graph.nodes), len(weights))
    return Model(
        name=name,
        function=module["forward"],
        module=module,
        inputs=tuple(InputSpec(name=n, shape=s, dtype=graph.input_dtypes[n]) for n, s in graph.inputs.items()),
        outputs=graph.outputs,
        parameters=dict(graph.weights),
        sources=sources,
        rewrites=graph.rewrites,
    )


def _variable(name: str, shape: Sequence[int], dtype: str) -> Any:
    return relax.Var(name, relax.TensorType(tuple(shape), dtype))


def _reject_unknown_ops(graph: NormalGraph, name: str) -> None:
    stock = onnx_frontend._get_convert_map()
    problems = []
    for node in graph.nodes:
        if node.domain not in ONNX_DOMAINS:
            problems.append(f"{describe(node)}: a custom op of domain `{node.domain}`")
        elif node.op_type in ("If", "Loop", "Scan"):
            problems.append(f"{describe(node)}: control flow that depends on data cannot be compiled ahead of time")
        elif node.op_type not in CONVERTERS and node.op_type not in stock:
            problems.append(f"{describe(node)}: no converter for op `{node.op_type}`")
    if problems:
        raise _unsupported(name, problems)


def _unsupported(name: str, problems: Sequence[str]) -> UnsupportedError:
    return UnsupportedError(
        f"{len(problems)} node{'s' if len(problems) > 1 else ''} of `{name}` cannot be imported:\n  "
        + "\n  ".join(problems),
        why="the importer has no translation for them",
        fix="export the model without these ops (a newer opset or the exporter's decompositions often help)",
    )


def _value(name: str, values: dict[str, Any], graph: NormalGraph) -> Any:
    if name not in values:
        values[name] = relax.const(runtime.tensor(graph.constants[name]))
    return values[name]


def _convert_node(node: Any, builder: Any, values: dict[str, Any], graph: NormalGraph, sources: dict[str, str]) -> None:
    inputs = [_value(n, values, graph) if n else None for n in node.input]
    known: list[Array | None] = [graph.constants.get(n) if n else None for n in node.input]
    context = NodeContext(node=node, builder=_Naming(builder, sources, describe(node)), inputs=inputs, known=known)
    own = node.op_type in CONVERTERS
    result = _convert_with_own(context) if own else _convert_with_stock(context, values, graph)
    results = list(result) if isinstance(result, (list, tuple, relax.Tuple)) else [result]
    for output, expr in zip(node.output, results, strict=False):
        if not isinstance(expr, relax.Var):
            expr = context.emit(expr)
        for tensor in [expr] if isinstance(expr.ty, relax.TensorType) else []:
            _require_static(tensor)
        values[output] = expr


def _require_static(expr: Any) -> None:
    try:
        shape_of(expr), dtype_of(expr)
    except (TypeError, ValueError, AttributeError) as error:
        raise CannotConvert("its output shape depends on data") from error


class _Naming:
    """A BlockBuilder that remembers which ONNX node each bound variable came from."""

    def __init__(self, builder: Any, sources: dict[str, str], source: str) -> None:
        self._builder = builder
        self._sources = sources
        self._source = source

    def emit(self, expr: Any, name_hint: str = "") -> Any:
        var = self._builder.emit(expr, name_hint)
        self._sources[str(var.name)] = self._source
        return var

    def emit_te(self, *args: Any, **kwargs: Any) -> Any:
        return self.emit(self._builder.call_te(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._builder, name)


def _convert_with_own(context: NodeContext) -> Any:
    try:
        return CONVERTERS[context.node.op_type](context)
    except (TypeError, ValueError, RuntimeError) as error:  # what Relax raises for shapes and types that do not fit
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise CannotConvert(f"its inputs do not fit together: {lines[-1][:200]}") from error


def _convert_with_stock(context: NodeContext, values: dict[str, Any], graph: NormalGraph) -> Any:
    """TVM's converter for the node; whatever it raises becomes `CannotConvert` with its first line."""
    node = context.node
    converter = onnx_frontend._get_convert_map()[node.op_type].get_converter(graph.opset)
    noise = io.StringIO()
    try:
        with contextlib.redirect_stdout(noise), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            attributes = onnx_frontend.ONNXGraphImporter({}, "float32")._parse_attr(node.attribute)
            attributes["tvm_custom"] = {"name": node.name, "num_outputs": len(node.output)}
            result = converter(context.builder, onnx_frontend.onnx_input(context.inputs), attributes, [values, {}])
            return context.builder.normalize(result) if isinstance(result, relax.Expr) else result
    except Exception as error:  # the stock converters raise everything from KeyError to TVM's InternalError
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise CannotConvert(f"the converter failed: {lines[-1][:200]}") from error
