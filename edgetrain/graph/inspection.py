"""What edgetrain sees in a model, as plain data: ops, parameters, which gradients exist, what was rewritten."""

from __future__ import annotations

from collections import Counter
from typing import Any

from edgetrain._tvm import relax
from edgetrain.graph.adapted import adapt
from edgetrain.graph.autodiff import emit_forward, missing_gradients
from edgetrain.graph.options import TrainOptions
from edgetrain.graph.trainable import running_statistics
from edgetrain.model.class_outputs import class_names_of
from edgetrain.model.load import opset_of
from edgetrain.model.model import Model
from edgetrain.model.tensor_names import onnx_name


def inspect(proto: Any, model: Model, options: TrainOptions) -> dict[str, Any]:
    """Raises `UsageError` when `options` select no parameter. Missing gradients are listed, not raised."""
    adapted = adapt(model, options)
    trained, model = adapted.trained, adapted.model
    statistics = running_statistics(model)
    return {
        "name": model.name,
        "opset": opset_of(proto),
        "inputs": [{"name": onnx_name(i.name), "shape": list(i.shape), "dtype": i.dtype} for i in model.inputs],
        "outputs": [
            {"name": n, "shape": [int(d) for d in ty.shape], "dtype": str(ty.dtype)}
            for n, ty in zip(model.outputs, model.function.body.body.ty.fields, strict=True)
        ],
        "ops": dict(sorted(Counter(n.op_type for n in proto.graph.node).items(), key=lambda x: (-x[1], x[0]))),
        "parameters": [
            {
                "name": onnx_name(n),
                "shape": list(a.shape),
                "bytes": int(a.nbytes),
                "trained": n in trained,
                "running_statistic": n in statistics,
            }
            for n, a in model.parameters.items()
        ],
        "missing_gradients": _missing(model, options, trained),
        "rewrites": list(model.rewrites),
        "class_names": list(class_names_of(proto)),
    }


def _missing(model: Model, options: TrainOptions, trained: tuple[str, ...]) -> list[str]:
    builder = relax.BlockBuilder(model.module)
    arguments = {v: relax.Var(str(v.name), v.ty) for v in model.function.params}
    with builder.function("forward_again", list(arguments.values())):
        with builder.dataflow():
            tape = emit_forward(
                builder, model.function, arguments, model.sources, training_batchnorm=options.batchnorm == "train"
            )
            returned = builder.emit_output(tape.outputs[0])
        builder.emit_func_output(returned)
    chosen = [v for v in arguments.values() if str(v.name) in trained]
    return missing_gradients(tape, chosen, tape.outputs[0])
