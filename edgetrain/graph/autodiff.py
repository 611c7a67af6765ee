"""Reverse-mode differentiation: record the forward pass on a tape, walk it back, one rule an op.

Gradients exist only along paths from a trained parameter to the loss, so a frozen prefix costs nothing.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgetrain._tvm import dtype_of, ir, relax, shape_of
from edgetrain.errors import UnsupportedError
from edgetrain.graph.gradients import RULES
from edgetrain.graph.gradients.rule import Backward, Done, Expr, Forward, Gradients, Rule


@dataclass(frozen=True, kw_only=True)
class TapeEntry:
    call: Any
    inputs: Sequence[Expr]
    outputs: tuple[Expr | None, ...]
    residuals: Any
    source: str


@dataclass(frozen=True, kw_only=True)
class Tape:
    """The forward pass as it was emitted."""

    entries: tuple[TapeEntry, ...]
    outputs: tuple[Expr, ...]  # the model's outputs
    state_updates: tuple[tuple[Expr, Expr], ...]
    definitions: Mapping[Expr, Any]


def emit_forward(
    builder: Any, function: Any, arguments: Mapping[Any, Expr], sources: Mapping[str, str], *, training_batchnorm: bool
) -> Tape:
    """Emits `function`'s body on `arguments`. BatchNorm uses the batch's statistics with `training_batchnorm`."""
    values: dict[Any, Any] = dict(arguments)  # old variable -> new expression, or a tuple of them
    definitions: dict[Any, Any] = {}
    entries: list[TapeEntry] = []
    moved: dict[
        Any, Expr
    ] = {}  # a statistic's variable -> its newest value: a layer that is called twice measures twice
    variable_of: dict[Any, Any] = {}
    for block in function.body.blocks:
        for binding in block.bindings:
            var, expr = binding.var, binding.value
            if not isinstance(expr, relax.Call):
                values[var] = _resolve(expr, values)
                continue
            arguments_now = [_as_argument(_resolve(a, values)) for a in expr.args]
            if moved:
                arguments_now = [moved.get(a, a) if isinstance(a, relax.Var) else a for a in arguments_now]
            call = relax.Call(expr.op, arguments_now, expr.attrs, expr.ty_args)
            done = _run_forward(builder, call, definitions, training_batchnorm)
            values[var] = done.outputs[0] if not isinstance(var.ty, relax.TupleType) else done.outputs
            for output in done.outputs:
                if output is not None:
                    definitions[output] = call
            for variable, updated in done.state_updates:
                variable_of[updated] = variable_of.get(variable, variable)
                moved[variable_of[updated]] = updated
            entries.append(
                TapeEntry(
                    call=call,
                    inputs=done.inputs if done.inputs is not None else list(call.args),
                    outputs=done.outputs,
                    residuals=done.residuals,
                    source=sources.get(str(var.name), ""),
                )
            )
    result = _resolve(function.body.body, values)
    outputs = result if isinstance(result, tuple) else (result,)
    return Tape(
        entries=tuple(entries), outputs=tuple(outputs), state_updates=tuple(moved.items()), definitions=definitions
    )


def _resolve(expr: Any, values: Mapping[Any, Any]) -> Any:
    match expr:
        case relax.Var():
            return values[expr]
        case relax.Tuple():
            return tuple(_resolve(f, values) for f in expr.fields)
        case relax.TupleGetItem():
            return _resolve(expr.tuple_value, values)[expr.index]
        case _:
            return expr


def _as_argument(value: Any) -> Any:
    return relax.Tuple(list(value)) if isinstance(value, tuple) else value


def _run_forward(builder: Any, call: Any, definitions: Mapping[Any, Any], training_batchnorm: bool) -> Done:
    rule = RULES.get(op_name(call))
    if rule is not None and rule.forward is not None:
        return rule.forward(
            Forward(builder=builder, call=call, training_batchnorm=training_batchnorm, definitions=definitions)
        )
    var = builder.emit(call)
    if isinstance(var.ty, relax.TupleType):
        return Done(outputs=tuple(builder.emit(relax.TupleGetItem(var, i)) for i in range(len(var.ty.fields))))
    return Done(outputs=(var,))


def op_name(call: Any) -> str:
    """The Relax op's name; `call_tir` names its kernel, so that errors can."""
    name = str(getattr(call.op, "name", call.op))
    return f"{name}({call.args[0].name_hint})" if name == "relax.call_tir" else name


@dataclass(frozen=True, kw_only=True)
class _Need:
    """Which values need a gradient: those that depend on a trained parameter and that the loss depends on."""

    values: frozenset[Any]
    entries: tuple[TapeEntry, ...]  # in forward order


def _needed(tape: Tape, trained: Iterable[Expr], output: Expr) -> _Need:
    depends = set(trained)
    for entry in tape.entries:
        if any(v in depends for v in _flat_variables(entry.inputs)):
            depends.update(o for o in entry.outputs if o is not None and _carries_gradient(o))
    reached = {output}
    path = []
    for entry in reversed(tape.entries):
        if any(o in reached and o in depends for o in entry.outputs if o is not None):
            path.append(entry)
            reached.update(_flat_variables(entry.inputs))
    return _Need(values=frozenset(depends & reached), entries=tuple(reversed(path)))


def _carries_gradient(value: Expr) -> bool:
    """Comparisons, casts to integers and the like end the path from a parameter to the loss."""
    return isinstance(value.ty, relax.TensorType) and dtype_of(value).startswith("float")


def _flat_variables(inputs: Sequence[Any]) -> list[Any]:
    flat: list[Any] = []
    for value in inputs:
        if isinstance(value, relax.Var):
            flat.append(value)
        elif isinstance(value, relax.Tuple):
            flat += _flat_variables(list(value.fields))
    return flat


def missing_gradients(tape: Tape, trained: Iterable[Expr], output: Expr) -> list[str]:
    """`ONNX node (relax op)` for every op between a trained parameter and the loss that has no gradient."""
    return [
        f"{entry.source or 'a node'} ({op_name(entry.call)})"
        for entry in _needed(tape, trained, output).entries
        if _rule(entry.call) is None
    ]


_MOST_NAMES = 4  # of tensors that a message lists


def _way_round(tape: Tape, trained: Mapping[Expr, str], output: Expr) -> str:
    """Which trained parameters stand before an op without a gradient, and how to train only the others."""
    before_missing: set[Any] = set()
    for entry in reversed(_needed(tape, trained, output).entries):
        if _rule(entry.call) is None or not before_missing.isdisjoint(entry.outputs):
            before_missing.update(_flat_variables(entry.inputs))
    blocked = {name for parameter, name in trained.items() if parameter in before_missing}
    free = [name for name in trained.values() if name not in blocked]
    before = ", ".join(f"`{name}`" for name in sorted(blocked)[:_MOST_NAMES])
    before += f" and {len(blocked) - _MOST_NAMES} more" if len(blocked) > _MOST_NAMES else ""
    if not free:
        return f"replace them in the model: everything trained ({before}) comes before them"
    after = f"the {len(free)} tensors after them" if len(free) > 1 else "the tensor after them"
    how = "`update.mode=head`, `update.mode=last-k` or `update.mode=names` with globs"
    if len(free) <= _MOST_NAMES:
        how = f"`update.mode=names {shlex.quote(f'update.names={json.dumps(free)}')}`"
    return f"freeze what comes before them ({before}) and train {after}: {how}; or replace them in the model"


def differentiate(
    builder: Any,
    tape: Tape,
    *,
    output: Expr,
    output_gradient: Expr,
    trained: Mapping[Expr, str],
    on_gradient: Callable[[str, Expr], None],
) -> None:
    """Emits the backward pass; calls `on_gradient(name, gradient)` as soon as a parameter's gradient is complete.

    Raises `UnsupportedError` naming every op on the way that has no derivative.
    """
    missing = missing_gradients(tape, trained, output)
    if missing:
        raise UnsupportedError(
            f"{len(missing)} op{'s' if len(missing) > 1 else ''} between the trained parameters and the loss "
            "have no gradient:\n  " + "\n  ".join(missing),
            why="edgetrain has no gradient rule for them",
            fix=_way_round(tape, trained, output),
        )
    need = _needed(tape, trained, output)
    reads = Counter(v for entry in need.entries for v in _flat_variables(entry.inputs))
    remaining = {p: reads[p] for p in trained}  # one pass over the tape: counting for each parameter is quadratic
    gradients: dict[Any, Expr] = {output: output_gradient}
    for entry in reversed(need.entries):
        _back_through(builder, entry, need, gradients)
        for parameter, count in Counter(v for v in _flat_variables(entry.inputs) if v in remaining).items():
            remaining[parameter] -= count
            if remaining[parameter] == 0 and parameter in gradients:
                on_gradient(trained[parameter], gradients.pop(parameter))


def _back_through(builder: Any, entry: TapeEntry, need: _Need, gradients: dict[Any, Expr]) -> None:
    output_gradients = [gradients.pop(o, None) if o is not None else None for o in entry.outputs]
    if all(g is None for g in output_gradients):
        return
    wanted = [any(v in need.values for v in _flat_variables([i])) for i in entry.inputs]
    rule = _rule(entry.call)
    assert rule is not None, "missing gradients are reported before the walk"
    results = rule.backward(
        Backward(
            builder=builder,
            call=entry.call,
            inputs=entry.inputs,
            outputs=[o for o in entry.outputs if o is not None],
            residuals=entry.residuals,
            output_gradients=output_gradients,
            wanted=wanted,
        )
    )
    for value, gradient in zip(entry.inputs, results, strict=True):
        if isinstance(value, relax.Tuple):
            for field, part in zip(value.fields, list(gradient) if gradient is not None else [], strict=False):
                _accumulate(builder, field, part, need, gradients)
        else:
            _accumulate(builder, value, gradient, need, gradients)


def _accumulate(builder: Any, value: Any, gradient: Expr | None, need: _Need, gradients: dict[Any, Expr]) -> None:
    if gradient is None or value not in need.values:
        return
    if value in gradients:
        gradient = builder.emit(relax.op.add(gradients[value], gradient))
    gradients[value] = gradient


def _rule(call: Any) -> Rule | None:
    """Our rule for the op, else one made from TVM's own gradient, else None."""
    name = op_name(call)
    if name in RULES:
        return RULES[name]
    if not isinstance(call.op, ir.Op):
        return None
    stock = call.op.get_attr("FPrimalGradient")
    return None if stock is None else Rule(backward=lambda step: _stock_gradient(stock, step))


def _stock_gradient(stock: Any, step: Backward) -> Gradients:
    outputs = list(step.outputs)
    if len(outputs) == 1 and len(step.output_gradients) == 1:
        variable, gradient = outputs[0], step.output_gradients[0]
    else:
        whole = step.emit(relax.Tuple(outputs))
        parts = [
            g if g is not None else step.emit(relax.op.zeros(shape_of(o), str(o.ty.dtype)))
            for o, g in zip(outputs, step.output_gradients, strict=True)
        ]
        variable, gradient = whole, step.emit(relax.Tuple(parts))
    results: list[Any] = []
    for expr in stock(variable, step.call, gradient, step.builder):
        if isinstance(expr, relax.Tuple):
            results.append([step.emit(f) for f in expr.fields])
        elif isinstance(expr, relax.Call) and str(getattr(expr.op, "name", "")) == "relax.grad.no_grad":
            results.append(None)
        else:
            results.append(step.emit(expr))
    return results
