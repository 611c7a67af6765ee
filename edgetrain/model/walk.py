"""The walk over an ONNX graph: each node is dropped, folded, inlined, unrolled or converted, in the file's order."""

from __future__ import annotations

import contextlib
import math
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from onnx import TensorProto, numpy_helper

from edgetrain._tvm import relax, runtime, shape_of
from edgetrain.errors import EdgetrainError, ModelError
from edgetrain.model.captured_names import captured_names
from edgetrain.model.control_flow import take_branch, unroll_loop, unroll_scan
from edgetrain.model.converters import CONVERTERS, FOREIGN_CONVERTERS, CannotConvert, NodeContext
from edgetrain.model.fold import fold_node, is_small, known_extent
from edgetrain.model.input_bounds import Requirement
from edgetrain.model.load import ONNX_DOMAINS, require_text
from edgetrain.model.model import Array
from edgetrain.model.scope import MISSING, Deferred, DeferredNode, Missing, Scope, Stored, Value, is_half, stored
from edgetrain.model.stock import convert_with_stock, stock_ops
from edgetrain.model.tensor_names import graph_name

MAXIMUM_NODES = 50_000  # after unrolling: what a graph builder and a planner still finish
MAXIMUM_ELEMENTS = 1 << 40  # of one tensor: more than any device holds
_DROPPED = ("Identity", "Dropout")
_LEARNED = ("Constant", "DequantizeLinear")  # a node that only carries weights, for a folded result to be learned
_WHOLE_NUMBERS = (TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL, TensorProto.INT8, TensorProto.UINT8)
_CONTROL = {"If": take_branch, "Loop": unroll_loop, "Scan": unroll_scan}


def describe(node: Any) -> str:
    """How errors and listings name a node: op and name, or its first output where the exporter gave no name."""
    domain = "" if node.domain in ONNX_DOMAINS else f"{node.domain}."
    return f"{domain}{node.op_type} `{node.name or (node.output[0] if node.output else '?')}`"


class Walk:
    """One import under way. `problems` names every node that could not be imported."""

    def __init__(self, builder: Any, *, opset: int, rebound_batch: int | None) -> None:
        self._builder = builder
        self._opset = opset
        self._rebound_batch = rebound_batch
        self._tensors: dict[Stored, Any] = {}
        self._evaluated: dict[DeferredNode, tuple[Array, ...]] = {}
        self._emitted: dict[DeferredNode, list[Value]] = {}
        # By the graph's id, beside the graph itself: protobuf makes its Python objects anew, and ids are used again.
        self._bodies: dict[int, tuple[Any, dict[str, Stored]]] = {}
        self.variables: dict[str, Any] = {}
        self.parameters: dict[str, Array] = {}
        self.sources: dict[str, str] = {}
        self.rewrites: list[str] = []
        self.problems: list[str] = []
        self.requirements: list[Requirement] = []
        self.converted = 0

    def run(self, graph: Any, *, inputs: Mapping[str, Any], known: Mapping[str, Array]) -> dict[str, Any]:
        """The outputs' tensors by name, without those that `problems` keep from being made."""
        scope: Scope = ChainMap({**inputs, **{n: Stored(n, a) for n, a in known.items()}})
        tensors: dict[str, Any] = {}
        for output, value in zip(graph.output, self._run_graph(graph, scope), strict=True):
            if isinstance(value, Missing):
                if not self.problems:
                    self.problems.append(f"output `{output.name}`: no node makes it")
                continue
            try:
                tensors[output.name] = self.tensor(value)
            except CannotConvert as error:
                self.problems.append(f"output `{output.name}`: {error}")
        return tensors

    def tensor(self, value: Value) -> Any:
        """See `Resolver`."""
        match value:
            case Stored():
                if value not in self._tensors:
                    self._tensors[value] = self._parameter(value) if value.learned else _constant(value.array)
                return self._tensors[value]
            case Deferred():
                maker = value.maker
                if maker not in self._emitted:
                    try:
                        self._emitted[maker] = self._convert(maker.node, maker.scope)
                    except CannotConvert as error:
                        raise CannotConvert(f"it needs {describe(maker.node)}: {error}") from error
                if value.index >= len(self._emitted[maker]):
                    raise CannotConvert(f"it needs output {value.index} of {describe(maker.node)}, which has fewer")
                return self.tensor(self._emitted[maker][value.index])
            case _:
                return value

    def known(self, value: Value) -> Array | None:
        """See `Resolver`."""
        match value:
            case Stored():
                return value.array
            case Deferred():
                maker = value.maker
                if maker not in self._evaluated:
                    folded = fold_node(maker.node, self._known_inputs(maker.node, maker.scope), self._opset)
                    if folded is None:
                        return None
                    self._evaluated[maker] = folded
                found = self._evaluated[maker]
                return found[value.index] if value.index < len(found) else None
            case _:
                return None

    def require(self, expr: Any, lowest: int, highest: int) -> None:
        """See `Resolver`."""
        self.requirements.append(Requirement(expr=expr, lowest=lowest, highest=highest))

    def _known_inputs(self, node: Any, scope: Scope) -> list[Array | None]:
        return [self.known(scope[n]) if n else None for n in node.input]

    def _parameter(self, value: Stored) -> Any:
        name = graph_name(value.name)
        while name in self.variables:
            name += "'"  # the branches and bodies of a graph may use a name again
        self.variables[name] = relax.Var(name, relax.TensorType(value.array.shape, str(value.array.dtype)))
        self.parameters[name] = value.array
        return self.variables[name]

    def _run_graph(self, graph: Any, scope: Scope) -> list[Value]:
        scope.update(self._initializers(graph))
        for node in _needed(graph):
            results = self._run_node(node, scope)
            scope.update((n, v) for n, v in zip(node.output, results, strict=False) if n)
        return [scope.get(o.name, MISSING) for o in graph.output]

    def _run_body(self, outer: Scope, graph: Any, inputs: Mapping[str, Value]) -> list[Value]:
        return self._run_graph(graph, outer.new_child(dict(inputs)))

    def _initializers(self, graph: Any) -> dict[str, Stored]:
        """Once a graph: a loop's body must find the same weights each time it runs."""
        if id(graph) not in self._bodies:
            arrays = {}
            for initializer in graph.initializer:
                require_text(initializer.name)
                try:
                    arrays[initializer.name] = numpy_helper.to_array(initializer)
                except Exception as error:  # whatever a broken tensor makes NumPy raise
                    raise ModelError(
                        f"initializer `{initializer.name}` cannot be read",
                        why=str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__,
                        fix="export the model again, or check that the download or copy is complete",
                    ) from error
            if any(is_half(a) for a in arrays.values()):
                self.rewrites.append("16-bit weights are trained as float32")
            self._bodies[id(graph)] = graph, {n: stored(n, a, may_learn=True) for n, a in arrays.items()}
        return self._bodies[id(graph)][1]

    def _run_node(self, node: Any, scope: Scope) -> Sequence[Value]:
        names = [n for n in node.input if n] + sorted(captured_names(node))
        values = [scope.get(n, MISSING) for n in names]
        try:
            _reject_unknown(node)
            if any(isinstance(v, Missing) for v in values):
                return [MISSING] * len(node.output)
            if node.op_type in _DROPPED and node.domain in ONNX_DOMAINS and values:
                self.rewrites.append(f"{describe(node)} dropped: it does nothing here")
                return [values[0], *[MISSING] * (len(node.output) - 1)]
            folded = self._fold(node, values, scope)
            return self._convert(node, scope) if folded is None else folded
        except CannotConvert as error:
            self.problems.append(f"{describe(node)}: {error}")
            return [MISSING] * len(node.output)

    def _fold(self, node: Any, values: Sequence[Value], scope: Scope) -> list[Value] | None:
        """Values of a node that needs no data, None where it must be converted."""
        if node.op_type in ("Shape", "Size") and node.domain in ONNX_DOMAINS and values:
            found = self.known(values[0])
            shape = found.shape if found is not None else shape_of(self.tensor(values[0]))
            self.rewrites.append(f"{describe(node)} folded: its value is known once the batch is")
            return [Stored(node.output[0], known_extent(node, shape))]
        if node.op_type in _CONTROL or not all(isinstance(v, (Stored, Deferred)) for v in values):
            return None
        may_defer = node.op_type not in _LEARNED and not _casts_to_whole_numbers(node)
        if may_defer and any(isinstance(v, Deferred) or v.learned for v in values):
            maker = DeferredNode(node, scope)
            return [Deferred(maker, i) for i in range(len(node.output))]
        arrays = fold_node(node, self._known_inputs(node, scope), self._opset)
        learned = node.op_type in _LEARNED
        if arrays is None and node.op_type == "Range" and node.domain in ONNX_DOMAINS:
            # TVM's converter would make it, whatever its length.
            raise CannotConvert("its numbers are more than a model can hold, or one of its inputs is missing")
        if arrays is None or not (learned or is_small(arrays)):
            return None
        if node.op_type != "Constant":
            self.rewrites.append(f"{describe(node)} folded: its value is known once the batch is")
        names = [o for o in node.output if o]
        return [stored(n, a, may_learn=learned) for n, a in zip(names, arrays, strict=True)]

    def _convert(self, node: Any, scope: Scope) -> list[Value]:
        self.converted += 1
        if self.converted > MAXIMUM_NODES:
            raise CannotConvert(f"the unrolled graph has more than {MAXIMUM_NODES} nodes")
        context = NodeContext(
            node=node,
            builder=_Naming(self._builder, self.sources, describe(node)),
            values=[scope[n] if n else None for n in node.input],
            resolver=self,
            opset=self._opset,
            rebound_batch=self._rebound_batch,
        )
        if node.op_type in _CONTROL and node.domain in ONNX_DOMAINS:
            self.rewrites.append(f"{describe(node)} resolved: what it decides is known before the model runs")
            with _misfits():
                return _CONTROL[node.op_type](context, partial(self._run_body, scope))
        return [_finished(context, expr) for expr in _converted(context)]


def _converted(context: NodeContext) -> list[Any]:
    node = context.node
    own = CONVERTERS.get(node.op_type) if node.domain in ONNX_DOMAINS else _foreign(node)
    if own is None:
        result = convert_with_stock(context)
    else:
        with _misfits():
            result = own(context)
    return list(result) if isinstance(result, (list, tuple, relax.Tuple)) else [result]


@contextlib.contextmanager
def _misfits() -> Iterator[None]:
    """Whatever Relax, NumPy and Python raise for shapes and types that do not fit, as `CannotConvert`."""
    try:
        yield
    except (CannotConvert, EdgetrainError):
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise CannotConvert(f"its inputs do not fit together: {lines[-1][:200]}") from error


def _finished(context: NodeContext, value: Value) -> Value:
    """Bound to a variable, its shape static. Arrays and omitted outputs stay what they are."""
    if value is None:
        return MISSING
    if isinstance(value, (Stored, Deferred, Missing)):
        return value
    expr = value if isinstance(value, relax.Var) else context.emit(value)
    if isinstance(expr.ty, relax.TensorType):
        try:
            shape = shape_of(expr)
        except (TypeError, ValueError, AttributeError) as error:
            raise CannotConvert("its output shape depends on data") from error
        if not 0 < math.prod(shape) <= MAXIMUM_ELEMENTS:
            raise CannotConvert(f"its output of {list(shape)} elements is {'empty' if 0 in shape else 'too large'}")
    return expr


def _foreign(node: Any) -> Any:
    return FOREIGN_CONVERTERS.get((node.domain, node.op_type))


def _reject_unknown(node: Any) -> None:
    if node.domain not in ONNX_DOMAINS:
        if _foreign(node) is None:
            raise CannotConvert(f"a custom op of domain `{node.domain}`")
    elif node.op_type not in {*_CONTROL, *_DROPPED, *CONVERTERS} and node.op_type not in stock_ops():
        raise CannotConvert(f"no converter for op `{node.op_type}`")


def _casts_to_whole_numbers(node: Any) -> bool:
    """Then nothing can be learned through it, and what it gives is often a size."""
    return node.op_type == "Cast" and any(a.name == "to" and a.i in _WHOLE_NUMBERS for a in node.attribute)


def _needed(graph: Any) -> list[Any]:
    """The nodes that an output depends on, in the file's order."""
    wanted = {o.name for o in graph.output}
    kept = []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(node.input)
            wanted.update(captured_names(node))
    return kept[::-1]


def _constant(array: Array) -> Any:
    if array.dtype.kind not in "fiub":
        raise CannotConvert(f"a constant holds {array.dtype}, not numbers")
    return relax.const(runtime.tensor(array.copy(order="C")))


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
