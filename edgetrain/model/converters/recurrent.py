"""LSTM, GRU and RNN, unrolled: each step is matmuls and activations that have gradients, so there is no new rule.

The inputs' product is taken once for the whole sequence; what is left in a step is the state's own product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgetrain._tvm import dtype_of, relax, runtime, shape_of
from edgetrain.model.converters.context import CannotConvert, Converter, NodeContext

MAXIMUM_STEPS = 512  # a graph of so many copies still compiles in minutes

Activation = Callable[[Any], Any]
ACTIVATIONS: Mapping[str, Activation] = {
    "Relu": relax.op.nn.relu,
    "Sigmoid": relax.op.sigmoid,
    "Softplus": relax.op.nn.softplus,
    "Tanh": relax.op.tanh,
}


@dataclass(frozen=True, kw_only=True)
class _Direction:
    """One direction's parameters, the gates of one step side by side in the last axis."""

    context: NodeContext
    hidden: int
    inputs: Sequence[Any]  # per step, (batch, gates · hidden): the inputs' product with its bias
    recurrent: Any  # (hidden, gates · hidden)
    recurrent_bias: Any | None  # (gates · hidden,), where it is not in `inputs` already
    activations: Sequence[Activation]

    def parts(self, tensor: Any) -> list[Any]:
        """The gates of `tensor`, each (batch, hidden)."""
        count = shape_of(tensor)[1] // self.hidden
        if count == 1:
            return [tensor]
        together = self.context.emit(relax.op.split(tensor, count, 1))
        return [self.context.emit(relax.TupleGetItem(together, i)) for i in range(count)]

    def columns(self, matrix: Any, first: int, last: int) -> Any:
        """The columns of `matrix` that belong to gates `first` to `last`."""
        axis = len(shape_of(matrix)) - 1
        return self.context.emit(
            relax.op.strided_slice(matrix, [axis], [first * self.hidden], [last * self.hidden], [1])
        )


State = tuple[Any, ...]  # the hidden state first
Step = Callable[[_Direction, Any, State], State]


def _add(context: NodeContext, *terms: Any) -> Any:
    total = terms[0]
    for term in terms[1:]:
        total = context.emit(relax.op.add(total, term)) if term is not None else total
    return total


def _product(context: NodeContext, *factors: Any) -> Any:
    return context.emit(relax.op.multiply(*factors))


def _lstm_step(direction: _Direction, inputs: Any, state: State) -> State:
    """Gates in ONNX's order: input, output, forget, cell."""
    context = direction.context
    hidden, cell = state
    sigmoid, cell_activation, out_activation = direction.activations
    gates = _add(context, context.emit(relax.op.matmul(hidden, direction.recurrent)), inputs, direction.recurrent_bias)
    enter, leave, keep, fresh = direction.parts(gates)
    kept = _product(context, context.emit(sigmoid(keep)), cell)
    entered = _product(context, context.emit(sigmoid(enter)), context.emit(cell_activation(fresh)))
    cell = _add(context, kept, entered)
    return _product(context, context.emit(sigmoid(leave)), context.emit(out_activation(cell))), cell


def _gru_step(direction: _Direction, inputs: Any, state: State) -> State:
    """Gates in ONNX's order: update, reset, hidden. h′ = (1 − z) · n + z · h"""
    context, (hidden,) = direction.context, state
    sigmoid, activation = direction.activations
    bias = direction.recurrent_bias
    update_in, reset_in, fresh_in = direction.parts(inputs)
    if context.attribute("linear_before_reset", 0):
        product = _add(context, context.emit(relax.op.matmul(hidden, direction.recurrent)), bias)
        update_own, reset_own, fresh_own = direction.parts(product)
        reset = context.emit(sigmoid(_add(context, reset_in, reset_own)))
        fresh = _add(context, fresh_in, _product(context, reset, fresh_own))
    else:
        first, last = direction.columns(direction.recurrent, 0, 2), direction.columns(direction.recurrent, 2, 3)
        update_own, reset_own = direction.parts(context.emit(relax.op.matmul(hidden, first)))
        reset = context.emit(sigmoid(_add(context, reset_in, reset_own)))
        fresh = _add(context, fresh_in, context.emit(relax.op.matmul(_product(context, reset, hidden), last)))
    fresh = context.emit(activation(fresh))
    update = context.emit(sigmoid(_add(context, update_in, update_own)))
    difference = context.emit(relax.op.subtract(hidden, fresh))
    return (_add(context, fresh, _product(context, update, difference)),)


def _rnn_step(direction: _Direction, inputs: Any, state: State) -> State:
    context = direction.context
    own = context.emit(relax.op.matmul(state[0], direction.recurrent))
    return (context.emit(direction.activations[0](_add(context, own, inputs, direction.recurrent_bias))),)


def _bias_is_separate(context: NodeContext) -> bool:
    """A GRU that resets the state's product, bias included, must keep that bias by itself."""
    return context.node.op_type == "GRU" and bool(context.attribute("linear_before_reset", 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    gates: int
    states: int  # hidden, and the cell of an LSTM
    activations: tuple[str, ...]
    step: Step


def _row(context: NodeContext, tensor: Any, index: int) -> Any:
    """`tensor[index]`, without its first axis."""
    shape = shape_of(tensor)
    if shape[0] > 1:
        tensor = context.emit(relax.op.strided_slice(tensor, [0], [index], [index + 1], [1]))
    return context.emit(relax.op.reshape(tensor, shape[1:]))


def _stack(context: NodeContext, tensors: Sequence[Any], axis: int) -> Any:
    rows = [context.emit(relax.op.expand_dims(t, axis)) for t in tensors]
    return rows[0] if len(rows) == 1 else context.emit(relax.op.concat(rows, axis))


def _activations(context: NodeContext, kind: _Kind, index: int) -> list[Activation]:
    names = [n.decode() if isinstance(n, bytes) else str(n) for n in context.attribute("activations", [])]
    names = names or list(kind.activations) * 2
    chosen = names[index * len(kind.activations) :][: len(kind.activations)]
    unknown = sorted(set(chosen) - set(ACTIVATIONS))
    if unknown or len(chosen) < len(kind.activations):
        raise CannotConvert(f"its activations {chosen} are not among {', '.join(ACTIVATIONS)}")
    return [ACTIVATIONS[n] for n in chosen]


def _direction(context: NodeContext, kind: _Kind, data: Any, index: int) -> _Direction:
    steps, batch, features = shape_of(data)
    weight, recurrent = _row(context, context.required(1), index), _row(context, context.required(2), index)
    hidden = shape_of(recurrent)[1]
    if shape_of(recurrent)[0] != kind.gates * hidden:
        raise CannotConvert(f"its weights of {shape_of(recurrent)} do not hold {kind.gates} gates of {hidden}")
    flat = context.emit(relax.op.reshape(data, (steps * batch, features)))
    product = context.emit(relax.op.matmul(flat, context.emit(relax.op.permute_dims(weight, [1, 0]))))
    separate = None
    if context.has(3):
        together = context.emit(relax.op.split(_row(context, context.required(3), index), 2, 0))
        bias, own = (context.emit(relax.TupleGetItem(together, i)) for i in range(2))
        separate = own if _bias_is_separate(context) else None
        product = _add(context, product, bias if separate is not None else _add(context, bias, own))
    rows = [product]
    if steps > 1:
        split = context.emit(relax.op.split(product, steps, 0))
        rows = [context.emit(relax.TupleGetItem(split, i)) for i in range(steps)]
    return _Direction(
        context=context,
        hidden=hidden,
        inputs=rows,
        recurrent=context.emit(relax.op.permute_dims(recurrent, [1, 0])),
        recurrent_bias=separate,
        activations=_activations(context, kind, index),
    )


def _initial(context: NodeContext, kind: _Kind, data: Any, hidden: int, index: int) -> State:
    batch = shape_of(data)[1]
    states = []
    for i in range(kind.states):
        if context.has(5 + i):
            given = context.required(5 + i)
            given = context.emit(relax.op.permute_dims(given, [1, 0, 2])) if context.attribute("layout", 0) else given
            state = _row(context, given, index)
            # A file exported for a batch of 1 holds one initial state for all.
            states.append(
                state
                if shape_of(state) == (batch, hidden)
                else context.emit(relax.op.broadcast_to(state, (batch, hidden)))
            )
        else:
            states.append(relax.const(runtime.tensor(np.zeros((batch, hidden), dtype_of(data)))))
    return tuple(states)


def _run(
    direction: _Direction, kind: _Kind, state: State, lengths: Any | None, *, backwards: bool
) -> tuple[list[Any], State]:
    """Each step's output in the order of time, and the last state."""
    context = direction.context
    outputs: list[Any] = [None] * len(direction.inputs)
    order = range(len(outputs))
    for t in reversed(order) if backwards else order:
        fresh = kind.step(direction, direction.inputs[t], state)
        outputs[t] = fresh[0]
        if lengths is not None:  # past the end of a row its state stays and its output is 0
            going = context.emit(relax.op.greater(lengths, relax.const(t, dtype_of(lengths))))
            outputs[t] = context.emit(relax.op.where(going, fresh[0], context.number(0.0, fresh[0])))
            fresh = tuple(context.emit(relax.op.where(going, n, o)) for n, o in zip(fresh, state, strict=True))
        state = fresh
    return outputs, state


def _lengths(context: NodeContext, steps: int, batch: int) -> Any | None:
    known = context.known_input(4)
    if not context.has(4) or (known is not None and bool(np.all(known == steps))):
        return None
    return context.emit(relax.op.reshape(context.required(4), (batch, 1)))


def _recurrent(kind: _Kind) -> Converter:
    def convert(context: NodeContext) -> list[Any]:
        for name in ("clip", "input_forget"):
            if context.attribute(name, 0):
                raise CannotConvert(f"`{name}` is not supported")
        if context.has(7):
            raise CannotConvert("peephole weights are not supported")
        by_batch = bool(context.attribute("layout", 0))
        data = context.required(0)
        data = context.emit(relax.op.permute_dims(data, [1, 0, 2])) if by_batch else data
        steps, batch, _ = shape_of(data)
        if steps > MAXIMUM_STEPS:
            raise CannotConvert(f"{steps} steps are more than the {MAXIMUM_STEPS} that are unrolled at most")
        lengths = _lengths(context, steps, batch)
        way = context.attribute("direction", "forward")
        every: list[list[Any]] = []
        last: list[State] = []
        for index, backwards in enumerate([False, True] if way == "bidirectional" else [way == "reverse"]):
            direction = _direction(context, kind, data, index)
            state = _initial(context, kind, data, direction.hidden, index)
            outputs, final = _run(direction, kind, state, lengths, backwards=backwards)
            every.append(outputs)
            last.append(final)
        y = _stack(context, [_stack(context, outputs, 0) for outputs in every], 1)
        finals = [_stack(context, states, 0) for states in zip(*last, strict=True)]
        if by_batch:
            y = context.emit(relax.op.permute_dims(y, [2, 0, 1, 3]))
            finals = [context.emit(relax.op.permute_dims(f, [1, 0, 2])) for f in finals]
        return [y, *finals]

    return convert


RECURRENT_CONVERTERS: Mapping[str, Converter] = {
    "GRU": _recurrent(_Kind(gates=3, states=1, activations=("Sigmoid", "Tanh"), step=_gru_step)),
    "LSTM": _recurrent(_Kind(gates=4, states=2, activations=("Sigmoid", "Tanh", "Tanh"), step=_lstm_step)),
    "RNN": _recurrent(_Kind(gates=1, states=1, activations=("Tanh",), step=_rnn_step)),
}
