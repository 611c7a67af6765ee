"""What a loss is, and how one that is written as a Relax expression gets its gradient from autodiff."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgetrain._tvm import constant_like, dtype_of, relax, te
from edgetrain.errors import UsageError
from edgetrain.graph.autodiff import differentiate, emit_forward
from edgetrain.graph.gradients.rule import Expr
from edgetrain.graph.options import LossOptions
from edgetrain.value_bounds import InputBounds

Shape = tuple[int, ...]
Emit = Callable[[Any, Expr, Expr], tuple[Expr, Expr]]  # (builder, output, labels) -> (loss, gradient of the output)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A loss for outputs of one shape. Labels have `label_shape` and `label_dtype`."""

    emit: Emit
    label_shape: Shape
    label_dtype: str
    absorbs: str  # the final op this loss contains already: it works on that op's input
    class_axis: int = 1  # of the output: a softmax along another one is not absorbed
    label_bounds: InputBounds | None = None  # of the labels that a kernel may meet


MakeLoss = Callable[[LossOptions, Shape], Loss]


def class_label_shape(loss: str, output_shape: Shape) -> Shape:
    """The shape of class numbers: the output's without the class axis, which is axis 1."""
    if len(output_shape) < 2:
        raise UsageError(
            f"{loss} needs an output of shape (batch, classes, …), this model's is {list(output_shape)}",
            fix="set `train.loss=bce` or `train.loss=mse metric=mse`",
        )
    return (output_shape[0], *output_shape[2:])


def scaled_sum(element: Callable[..., Any], shape: Shape, scale: float, name: str) -> Any:
    """A TE scalar: `scale` times the sum of `element` over all places of the shape."""
    axes = [te.reduce_axis((0, extent), f"a{i}") for i, extent in enumerate(shape)]
    total = te.compute((), lambda: te.sum(element(*axes), axis=axes), name=f"{name}_sum")
    return te.compute((), lambda: total[()] * constant_like(scale, total), name=name)


class Recorder:
    """A straight line of Relax calls, not yet in any function: `emit` as on a builder, `function` at the end."""

    def __init__(self, builder: Any) -> None:
        self._builder = builder  # infers types and holds the kernels; nothing is emitted into it
        self._bindings: list[Any] = []

    def emit(self, expr: Any) -> Any:
        value = self._builder.normalize(expr)
        if isinstance(value, relax.Var):
            return value
        var = relax.DataflowVar(f"loss{len(self._bindings)}", value.ty)
        self._bindings.append(relax.VarBinding(var, value))
        return var

    def emit_te(self, compute: Callable[..., Any], *args: Any) -> Any:
        return self.emit(self._builder.call_te(compute, *args, primfunc_name_hint=compute.__name__))

    def function(self, parameters: list[Any], result: Any) -> Any:
        body = relax.SeqExpr([relax.DataflowBlock(self._bindings)], result)
        return relax.Function(parameters, body, result.ty)


def derived(express: Callable[[Recorder, Expr, Expr], Expr]) -> Emit:
    """The `emit` of a loss given as an expression of output and labels; autodiff makes the gradient."""

    def emit(builder: Any, output: Expr, labels: Expr) -> tuple[Expr, Expr]:
        parameters = [relax.Var(name, value.ty) for name, value in (("output", output), ("labels", labels))]
        recorder = Recorder(builder)
        result = express(recorder, *parameters)
        return emit_derived(builder, recorder.function(parameters, result), [output, labels])

    return emit


def emit_derived(builder: Any, function: Any, arguments: list[Expr]) -> tuple[Expr, Expr]:
    """Emits a function that returns a scalar, and its derivative by the first argument.

    Raises `UsageError` when the scalar does not depend on it, `UnsupportedError` for an op without gradient.
    """
    tape = emit_forward(
        builder, function, dict(zip(function.params, arguments, strict=True)), {}, training_batchnorm=False
    )
    loss, output = tape.outputs[0], arguments[0]
    found: dict[str, Expr] = {}
    differentiate(
        builder,
        tape,
        output=loss,
        output_gradient=relax.const(1.0, dtype_of(loss)),
        trained={output: "output"},
        on_gradient=found.__setitem__,
    )
    if not found:
        raise UsageError("the loss does not depend on the model's output", fix="check the inputs of the loss's graph")
    return loss, found["output"]
