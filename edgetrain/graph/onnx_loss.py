"""A loss given as a small ONNX graph from (output, labels) to a scalar, differentiated like the model."""

from __future__ import annotations

import base64
from typing import Any

import onnx

from edgetrain._tvm import relax, runtime, shape_of
from edgetrain.errors import ModelError, UsageError
from edgetrain.graph.gradients.rule import Expr
from edgetrain.graph.loss import Loss, Recorder, Shape, emit_derived
from edgetrain.graph.options import LossOptions
from edgetrain.model.importer import import_model
from edgetrain.model.load import check
from edgetrain.model.model import Model


def onnx_loss(options: LossOptions, output_shape: Shape) -> Loss:
    """The loss whose ONNX file `options.graph` holds in base64.

    Its first input is the model's first output, its second the labels, its only output has one element. Initializers
    are constants. Raises `ModelError` when it is none of that, and as `import_model` does.
    """
    proto = _parse(options.graph)
    inputs = [i for i in proto.graph.input if all(i.name != t.name for t in proto.graph.initializer)]
    if len(inputs) != 2 or len(proto.graph.output) != 1:
        raise ModelError(
            f"the loss's graph has {len(inputs)} inputs and {len(proto.graph.output)} outputs",
            why="a loss takes the model's output and the labels, and gives one number",
            fix="export it as a function of two inputs with one output",
        )
    shapes = {inputs[0].name: output_shape}
    model = import_model(proto, name="the loss", batch=output_shape[0], shapes=shapes)
    (result,) = model.function.body.body.ty.fields
    if any(int(d) != 1 for d in result.shape):
        raise ModelError(
            f"the loss's output has the shape {[int(d) for d in result.shape]}",
            why="a loss is one number",
            fix="end the graph in ReduceMean or ReduceSum over all axes",
        )
    labels = model.inputs[1]
    return Loss(
        emit=_emitter(model), label_shape=labels.shape, label_dtype=labels.dtype, absorbs="", label_bounds=labels.bounds
    )


def _parse(graph: str) -> Any:
    if not graph:
        raise UsageError("train.loss = 'onnx' needs a graph", fix="name it with `train.loss_graph=LOSS.onnx`")
    try:
        proto = onnx.ModelProto.FromString(base64.b64decode(graph, validate=True))
    except Exception as error:  # base64's own, or protobuf's DecodeError
        raise ModelError("the loss's file is not an ONNX model", why=str(error), fix="export it again") from error
    check(proto, "the loss")
    return proto


def _emitter(model: Model) -> Any:
    def emit(builder: Any, output: Expr, labels: Expr) -> tuple[Expr, Expr]:
        constants = [relax.const(runtime.tensor(value)) for value in model.parameters.values()]
        return emit_derived(builder, _relocated(builder, model), [output, labels, *constants])

    return emit


def _relocated(builder: Any, model: Model) -> Any:
    """The model's function as a scalar, calling kernels of the builder's own module."""
    recorder = Recorder(builder)
    parameters = [relax.Var(str(v.name), v.ty) for v in model.function.params]
    values: dict[Any, Any] = dict(zip(model.function.params, parameters, strict=True))
    kernels: dict[Any, Any] = {}

    def moved(expr: Any) -> Any:
        match expr:
            case relax.Var():
                return values[expr]
            case relax.GlobalVar():
                if expr not in kernels:
                    kernels[expr] = builder.add_func(model.module[expr], str(expr.name_hint))
                return kernels[expr]
            case relax.Tuple():
                return relax.Tuple([moved(f) for f in expr.fields])
            case relax.TupleGetItem():
                return relax.TupleGetItem(moved(expr.tuple_value), expr.index)
            case relax.Call():
                return relax.Call(expr.op, [moved(a) for a in expr.args], expr.attrs, expr.ty_args)
            case _:
                return expr

    for block in model.function.body.blocks:
        for binding in block.bindings:
            values[binding.var] = recorder.emit(moved(binding.value))
    result = moved(model.function.body.body)
    loss = result.fields[0] if isinstance(result, relax.Tuple) else recorder.emit(relax.TupleGetItem(result, 0))
    if shape_of(loss) != ():
        loss = recorder.emit(relax.op.reshape(loss, ()))
    return recorder.function(parameters, loss)
