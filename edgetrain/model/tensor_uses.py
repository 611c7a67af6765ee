"""Who reads a stored tensor, in which role and for which layer: what tells a tie from a coincidence.

Exporters store equal tensors once. PyTorch's TorchScript exporter then names the others by `Identity` nodes; its newer
one, tf2onnx and graph optimizers let all layers read the same tensor. Both PyTorch exporters write down which module a
node came from: in the node's name, or in its metadata.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from edgetrain.model.captured_names import captured_names
from edgetrain.model.load import ONNX_DOMAINS

MEAN, VARIANCE, SCALE, SHIFT = "mean", "variance", "scale", "shift"  # of normalisations
VECTOR, MATRIX = "vector", "matrix"  # biases, and whatever else is added or multiplied; weights and tables
STATISTICS = (MEAN, VARIANCE)

_LEARNED_NORMS = ("GroupNormalization", "InstanceNormalization", "LayerNormalization", "RMSNormalization")
_ROLES: Mapping[tuple[str, int], str] = {
    ("BatchNormalization", 1): SCALE,
    ("BatchNormalization", 2): SHIFT,
    ("BatchNormalization", 3): MEAN,
    ("BatchNormalization", 4): VARIANCE,
    **{(op, 1): SCALE for op in _LEARNED_NORMS},
    **{(op, 2): SHIFT for op in _LEARNED_NORMS},
}
# What PyTorch's layers call them.
_LAST_NAMES = {MEAN: "running_mean", VARIANCE: "running_var", SCALE: "weight", SHIFT: "bias"}
VIEWS = ("Cast", "Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
_TABLES = ("Gather", "GatherElements", "GatherND")
_NOT_READ = (("CastLike", 1), ("Shape", 0), ("Size", 0))  # only the type or the shape is
_SCOPES = "pkg.torch.onnx.name_scopes"
_REPEATED = re.compile(r"_\d+$")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorUse:
    """Input `position` of `node` is the tensor, through the view nodes of `chain`, `Identity` among them."""

    node: Any
    position: int
    chain: tuple[Any, ...]
    role: str
    label: str  # the parameter's own name, where an exporter gave it one by an `Identity`; else ""
    module: str | None  # the path of the PyTorch module that reads it; None where the file does not tell

    @property
    def is_table(self) -> bool:
        return self.node.op_type in _TABLES


def is_temporary(name: str) -> bool:
    """Whether PyTorch's exporter computed the tensor itself: it has no name in the module."""
    return name.startswith("onnx::") or re.fullmatch(r"val_\d+", name) is not None


class GraphIndex:
    """A graph's nodes by what they read and make."""

    def __init__(self, proto: Any) -> None:
        self.graph = proto.graph
        self.is_from_torch = bool(proto.producer_name == "pytorch")
        self.stored = {tensor.name: tensor for tensor in self.graph.initializer}
        self._nodes = list(self.graph.node)  # held: protobuf makes its Python objects anew, and ids are used again
        self._added: dict[int, list[Any]] = {}
        self.producers = {output: node for node in self._nodes for output in node.output}
        self.readers: dict[str, list[tuple[Any, int]]] = {}
        self.pinned = {output.name for output in self.graph.output}  # read by what is not rewritten
        for node in self._nodes:
            for position, name in enumerate(node.input):
                self.readers.setdefault(name, []).append((node, position))
            self.pinned |= captured_names(node)
        self._scopes = {scope for node in self._nodes if (scope := _scope_of_name(node))}
        # TorchScript's exporter merges equal tensors by `Identity` and nothing else, as long as those are still there.
        merges = any(node.op_type == "Identity" and node.input[0] in self.stored for node in self._nodes)
        self.is_traced = self.is_from_torch and merges and not any(map(_scope_of_metadata, self._nodes))

    def uses(self, name: str) -> list[TensorUse]:
        """All uses of a stored tensor, in the file's order."""
        is_vector = sum(extent > 1 for extent in self.stored[name].dims) <= 1
        return list(self._uses(name, (), "", is_vector=is_vector))

    def _uses(self, name: str, chain: tuple[Any, ...], label: str, *, is_vector: bool) -> Iterator[TensorUse]:
        for node, position in self.readers.get(name, ()):
            is_identity = node.op_type == "Identity"
            if node.domain in ONNX_DOMAINS and (is_identity or (node.op_type in VIEWS and position == 0)):
                named = node.output[0] if is_identity and self.is_traced else label
                yield from self._uses(node.output[0], (*chain, node), named, is_vector=is_vector)
            elif (node.op_type, position) not in _NOT_READ:
                yield TensorUse(
                    node=node,
                    position=position,
                    chain=chain,
                    role=_ROLES.get((node.op_type, position), VECTOR) if is_vector else MATRIX,
                    label=label,
                    module=self.module_of(node),
                )

    def rename(self, node: Any, name: str) -> None:
        """Calls the node's first output `name`, wherever it is read."""
        old = node.output[0]
        node.output[0] = name
        self.producers[name] = self.producers.pop(old)
        for reader, position in self.readers.get(old, ()):
            if reader.input[position] == old:
                reader.input[position] = name

    def add_before(self, node: Any, added: Any) -> None:
        """Puts a new node before another one, with the next `rebuild`."""
        self._added.setdefault(id(node), []).append(added)
        self.producers[added.output[0]] = added

    def rebuild(self) -> None:
        """Writes the nodes to the graph, the added ones included, without views that nothing reads."""
        nodes = [one for node in self._nodes for one in (*self._added.get(id(node), ()), node)]
        while True:
            read = {name for node in nodes for name in node.input} | self.pinned
            kept = [n for n in nodes if n.op_type not in ("Identity", *VIEWS) or not read.isdisjoint(n.output)]
            if len(kept) == len(nodes):
                break
            nodes = kept
        del self.graph.node[:]
        self.graph.node.extend(nodes)

    def module_of(self, node: Any) -> str | None:
        """The module's path, or None."""
        scope = _scope_of_metadata(node)
        if scope is not None or not self.is_from_torch:
            return scope
        named = _scope_of_name(node)
        if named is None:
            return None
        # A module that is called again gets a number: `norm_1` is `norm` where there is one.
        first = next((scope for scope in _without_number(named) if scope in self._scopes), named)
        return first.strip("/").replace("/", ".")

    def nearest_weights(self, node: Any) -> tuple[object, ...]:
        """The matrices at the fewest nodes before `node`, or of the node itself, with their distance.

        Two calls of one layer have the same ones; two layers that share an equal bias have not.
        """
        level, seen, distance = [node], {id(node)}, 0
        while level:
            found = sorted({name for one in level for name in one.input if self._is_matrix(name)})
            if found:
                return distance, *found
            before = [self.producers[name] for one in level for name in one.input if name in self.producers]
            level = list({id(one): one for one in before if id(one) not in seen}.values())
            seen |= {id(one) for one in level}
            distance += 1
        return (distance,)

    def _is_matrix(self, name: str) -> bool:
        while name not in self.stored:
            node = self.producers.get(name)
            if node is None or node.op_type not in ("Identity", *VIEWS):
                return False
            name = node.input[0]
        return bool(sum(extent > 1 for extent in self.stored[name].dims) > 1)


def last_name(use: TensorUse, name: str) -> str:
    """The last part of the name that PyTorch's layers give a parameter, for one that was stored as `name`."""
    own = name.rpartition(".")[2]
    return _LAST_NAMES.get(use.role) or ("bias" if own in _LAST_NAMES.values() and use.role == VECTOR else own)


def _scope_of_metadata(node: Any) -> str | None:
    found = next((entry.value for entry in node.metadata_props if entry.key == _SCOPES), None)
    if found is None:
        return None
    try:
        *modules, _op = ast.literal_eval(found)
    except (ValueError, SyntaxError):
        return None
    return str(modules[-1]) if modules else ""


def _scope_of_name(node: Any) -> str | None:
    """`/enc/enc.0` of a node that TorchScript's exporter called `/enc/enc.0/Conv`."""
    name = str(node.name)
    return name.rsplit("/", 1)[0] if name.startswith("/") else None


def _without_number(scope: str) -> Iterator[str]:
    """The scope without the number behind one of its parts, the last part first, then without any."""
    parts = scope.split("/")
    bare = [_REPEATED.sub("", part) for part in parts]
    for i in reversed(range(len(parts))):
        if bare[i] != parts[i]:
            yield "/".join((*parts[:i], bare[i], *parts[i + 1 :]))
    if bare != parts:
        yield "/".join(bare)
