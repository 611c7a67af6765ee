"""ONNX → Relax. The walk and the errors are ours; converters are ours where TVM's fail, TVM's for the rest.

Real exports compute their shapes at run time (Shape → Gather → Concat → Reshape), carry weights in `Constant` nodes
and keep `Dropout` and `Identity` from training. With the batch chosen, every tensor's shape is a number as the walk
reaches it, so all of that is known then: only real computation is emitted.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from edgetrain._tvm import relax
from edgetrain.errors import ModelError, UnsupportedError
from edgetrain.model.input_bounds import input_limits
from edgetrain.model.inputs import bind_inputs
from edgetrain.model.load import opset_of
from edgetrain.model.model import InputSpec, Model
from edgetrain.model.tensor_names import graph_name
from edgetrain.model.walk import Walk

log = logging.getLogger(__name__)


def import_model(
    proto: Any, *, name: str, batch: int, shapes: Mapping[str, Sequence[int]] | None = None, output: str = ""
) -> Model:
    """A `Model` with every dimension a number, its outputs in the file's order.

    With `output`, that one comes first, and others that cannot be imported, or that are no value of their own, are
    left out: nobody trains on them.
    Raises `UnsupportedError` naming every node that cannot be imported, and `ModelError` as `bind_inputs` does.
    """
    declared = [o.name for o in proto.graph.output]
    if not declared:
        raise ModelError("the model has no outputs", fix="export the model with its result as a graph output")
    stored = frozenset(i.name for i in proto.graph.initializer)
    bound = bind_inputs(proto.graph, stored, batch=batch, shapes=shapes)
    builder = relax.BlockBuilder()
    walk = Walk(builder, opset=opset_of(proto), rebound_batch=batch if bound.rebound else None)
    inputs = {n: _variable(graph_name(n), s, bound.dtypes[n]) for n, s in bound.shapes.items()}
    with builder.function("forward"):
        with builder.dataflow():
            made = walk.run(proto.graph, inputs=inputs, known=bound.values)
            outputs = _with_first(made, output) if output in made else made
            returned = builder.emit_output(relax.Tuple(list((outputs or inputs).values())))
        builder.emit_func_output(returned, [*inputs.values(), *walk.variables.values()])
    if (output or declared[0]) not in made or (not output and len(made) < len(set(declared))):
        raise _unsupported(name, walk.problems)
    left_out = [n for n in declared if n not in outputs]
    built = builder.get()
    limits = input_limits(built["forward"], inputs, walk.requirements)
    module, used = _without_dead_code(built, walk.variables)
    log.info("imported %s: %d nodes, %d parameters", name, walk.converted, len(used))
    return Model(
        name=name,
        function=module["forward"],
        module=module,
        inputs=tuple(
            InputSpec(name=graph_name(n), shape=s, dtype=bound.dtypes[n], bounds=limits.bounds.get(n))
            for n, s in bound.shapes.items()
        ),
        outputs=tuple(outputs),
        parameters={n: walk.parameters[n] for n in used},
        sources=walk.sources,
        rewrites=(*bound.rewrites, *walk.rewrites, *_left_out(left_out, walk.problems)),
        warnings=tuple(_told_of_clipped(name) for name in limits.clipped),
    )


def _told_of_clipped(name: str) -> str:
    return (
        f"ids in `{name}` that are out of range are clipped, not refused: the model computes them "
        "from that input in a way that is not followed; check them in the data"
    )


def _with_first(tensors: Mapping[str, Any], first: str) -> dict[str, Any]:
    """`tensors` from `first` on, without any that is an earlier one again, an input, a parameter or a constant."""
    kept = {first: tensors[first]}
    for name, tensor in tensors.items():
        if isinstance(tensor, relax.DataflowVar) and not any(tensor.same_as(other) for other in kept.values()):
            kept[name] = tensor
    return kept


def _left_out(names: Sequence[str], problems: Sequence[str]) -> list[str]:
    if not names:
        return []
    listed = ", ".join(f"`{n}`" for n in names)
    return [f"not computed, and not trained on: output {listed}" + (f" ({'; '.join(problems)})" if problems else "")]


def _variable(name: str, shape: Sequence[int], dtype: str) -> Any:
    return relax.Var(name, relax.TensorType(tuple(shape), dtype))


def _without_dead_code(module: Any, variables: Mapping[str, Any]) -> tuple[Any, list[str]]:
    """The module without what only shapes were read from, and the names of the parameters that are left."""
    module = relax.transform.DeadCodeElimination(["forward"])(module)
    forward = module["forward"]
    read = {str(v.name) for v in relax.analysis.all_vars(forward.body)}
    used = [n for n in variables if n in read]
    params = [p for p in forward.params if str(p.name) in used or str(p.name) not in variables]
    if len(params) < len(forward.params):
        function = relax.Function(params, forward.body, forward.ret_ty).with_attr("global_symbol", "forward")
        module.update_func(module.get_global_var("forward"), function)
    return module, used


def _unsupported(name: str, problems: Sequence[str]) -> UnsupportedError:
    return UnsupportedError(
        f"{len(problems)} node{'s' if len(problems) > 1 else ''} of `{name}` cannot be imported:\n  "
        + "\n  ".join(problems),
        why="the importer has no translation for them",
        fix="export the model without these ops (a newer opset or the exporter's decompositions often help)",
    )
