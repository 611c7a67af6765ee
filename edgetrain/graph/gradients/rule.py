"""What a gradient rule is: how an op runs while training, and how its inputs' gradients follow from its output's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from edgetrain._tvm import dtype_of, relax, shape_of

Expr = Any  # relax.Expr


_OPAQUE_PATTERN = 8  # relax's OpPatternKind.kOpaque


def emit_kernel(builder: Any, compute: Callable[..., Any], *args: Expr, fusible: bool = True, **settings: Any) -> Expr:
    """Emits a kernel given as a TE function of TE tensors; `compute`'s name becomes the kernel's.

    Kernels that write in place must not be `fusible`: a fused neighbour could read an element already overwritten.
    """
    bound = partial(compute, **settings)  # emit_te would try to turn the settings into TE expressions
    attributes = {} if fusible else {"primfunc_attrs": {"op_pattern": _OPAQUE_PATTERN}}
    return builder.emit_te(bound, *args, primfunc_name_hint=compute.__name__, **attributes)


def emit_function(
    builder: Any, function: Any, name: str, args: Sequence[Expr], *, shape: Sequence[int], dtype: str
) -> Expr:
    """Emits a call of a TIR function with one output, for what TE cannot say. Nothing is fused into it."""
    callee = builder.add_func(function.with_attr("op_pattern", _OPAQUE_PATTERN), name)
    return builder.emit(relax.call_tir(callee, list(args), relax.TensorType(tuple(shape), dtype)))


@dataclass(frozen=True, kw_only=True)
class Forward:
    """One op of the forward pass, its inputs already in the training function."""

    builder: Any
    call: Any  # relax.Call on the training function's variables
    training_batchnorm: bool
    definitions: Mapping[Any, Any]  # variable -> the call that made it, for rules that look one op back

    @property
    def inputs(self) -> Sequence[Expr]:
        return list(self.call.args)

    @property
    def attributes(self) -> Any:
        return self.call.attrs

    def emit_te(self, compute: Callable[..., Any], *args: Any, **kwargs: Any) -> Expr:
        return emit_kernel(self.builder, compute, *args, **kwargs)


@dataclass(frozen=True, kw_only=True)
class Done:
    """What a forward rule hands back: the outputs, what the backward needs, and values that update state in place."""

    outputs: tuple[Expr | None, ...]
    inputs: tuple[Expr, ...] | None = None  # what the gradients are of, where it is not the call's own arguments
    residuals: Any = None
    state_updates: tuple[tuple[Expr, Expr], ...] = ()  # (variable, its new value)


@dataclass(frozen=True, kw_only=True)
class Backward:
    """One op of the tape, visited in reverse. `wanted[i]` says whether input i needs a gradient at all."""

    builder: Any
    call: Any
    inputs: Sequence[Expr]
    outputs: Sequence[Expr]
    residuals: Any
    output_gradients: Sequence[Expr | None]
    wanted: Sequence[bool]

    @property
    def attributes(self) -> Any:
        return self.call.attrs

    @property
    def output_gradient(self) -> Expr:
        """The gradient of an op with one output."""
        return self.output_gradients[0]

    def emit(self, expr: Expr) -> Expr:
        return self.builder.emit(expr)

    def emit_te(self, compute: Callable[..., Any], *args: Any, **kwargs: Any) -> Expr:
        return emit_kernel(self.builder, compute, *args, **kwargs)


Gradients = Sequence[Expr | None]  # one for each input of the call; None where none is wanted or defined


@dataclass(frozen=True, kw_only=True)
class Rule:
    """`backward` is called only when at least one input wants a gradient."""

    backward: Callable[[Backward], Gradients]
    forward: Callable[[Forward], Done] | None = None


def sum_to_shape(step: Backward, gradient: Expr, like: Expr) -> Expr:
    """Undoes broadcasting: sums `gradient` over the axes along which `like` was repeated."""
    have, want = shape_of(gradient), shape_of(like)
    if have == want:
        return gradient
    lead = len(have) - len(want)
    axes = [i for i, extent in enumerate(have) if i < lead or (want[i - lead] == 1 and extent != 1)]
    summed = step.emit(relax.op.sum(gradient, axes)) if axes else gradient
    return step.emit(relax.op.reshape(summed, want)) if shape_of(summed) != want else summed


def zeros_like(step: Backward, expr: Expr) -> Expr:
    return step.emit(relax.op.zeros(shape_of(expr), dtype_of(expr)))
