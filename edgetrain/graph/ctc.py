"""Connectionist temporal classification (Graves et al., 2006): the loss of a sequence of labels without their times.

Outputs are (batch, time, classes), class 0 the blank. Labels are rows of class numbers, each padded at its end with −1.
The loss is −log of the summed probability of all paths that spell the row, over the row's length, and the mean of that
over the batch: `torch.nn.functional.ctc_loss` as it is called by default.

With blanks round every label a row of L labels has 2L + 1 states. `reached` is the log probability of all ways to a
state at a time, its own output included, and `remaining` that of all ways from it to the end. Their product at any one
time sums up to the probability of the row, which gives the gradient in closed form (equation 16 of the paper).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgetrain._tvm import IRBuilder, constant_like, dtype_of, relax, shape_of, te, tir_script, tirx
from edgetrain.errors import UsageError
from edgetrain.graph.gradients.rule import Expr, emit_function, emit_kernel
from edgetrain.graph.loss import Loss, Shape
from edgetrain.graph.options import LossOptions

BLANK = 0
_IMPOSSIBLE = -1e30  # the logarithm of 0: finite, so that sums and differences of it are numbers
_LABEL_TYPE = "int64"


def ctc(options: LossOptions, output_shape: Shape) -> Loss:
    """Raises `UsageError` for outputs that are no sequence of class scores, or too short for `label_length`."""
    if len(output_shape) != 3 or output_shape[2] < 2:
        raise UsageError(
            f"ctc needs an output of shape (batch, time, classes), this model's is {list(output_shape)}",
            why="class 0 is the blank, the other classes are labels",
            fix="transpose the model's output, or use another train.loss",
        )
    batch, time, _ = output_shape
    labels = options.label_length or time
    if labels > time:
        raise UsageError(
            f"train.label_length = {labels} is more than the model's {time} time steps",
            why="a time step gives one label at most",
            fix=f"set `train.label_length={time}` or less",
        )
    return Loss(
        emit=_emit,
        label_shape=(batch, labels),
        label_dtype=_LABEL_TYPE,
        absorbs="relax.nn.softmax",
        class_axis=2,
        label_bounds=(-1, output_shape[2] - 1),  # −1 pads a row
    )


def _emit(builder: Any, logits: Expr, labels: Expr) -> tuple[Expr, Expr]:
    batch, time, classes = shape_of(logits)
    sizes = _Sizes(batch=batch, time=time, classes=classes, labels=shape_of(labels)[1], dtype=dtype_of(logits))
    log_p = builder.emit(relax.op.nn.log_softmax(logits, axis=2))
    lengths = emit_kernel(builder, ctc_lengths, labels)
    grid = (sizes.batch, sizes.time, sizes.states)
    operands = [log_p, labels, lengths]
    reached, remaining = (
        emit_function(builder, make(sizes), name, operands, shape=grid, dtype=sizes.dtype)
        for name, make in (("ctc_reached", _reached), ("ctc_remaining", _remaining))
    )
    log_row = emit_kernel(builder, ctc_log_row, reached, lengths)
    loss = emit_kernel(builder, ctc_loss, log_row, lengths)
    operands = [log_p, labels, lengths, reached, remaining, log_row]
    function = _gradient(sizes)
    return loss, emit_function(builder, function, "ctc_gradient", operands, shape=shape_of(logits), dtype=sizes.dtype)


def ctc_lengths(labels: Any) -> Any:
    """How many labels each row has."""
    batch, width = shape_of(labels)
    k = te.reduce_axis((0, width), "k")
    one, zero = tirx.const(1, _LABEL_TYPE), tirx.const(0, _LABEL_TYPE)
    return te.compute((batch,), lambda n: te.sum(tirx.Select(labels[n, k] >= zero, one, zero), axis=k))


def ctc_log_row(reached: Any, lengths: Any) -> Any:
    """The log probability of each row: both last states, the last label and the blank after it, end it."""
    batch, time, states = shape_of(reached)
    first, highest = tirx.const(0, _LABEL_TYPE), tirx.const(states - 1, _LABEL_TYPE)

    def element(n: Any) -> Any:
        last = tirx.min(lengths[n] * 2, highest)
        label = tirx.min(tirx.max(lengths[n] * 2 - 1, first), highest)
        never = constant_like(_IMPOSSIBLE, reached)
        return _log_sum(reached[n, time - 1, last], tirx.Select(last > 0, reached[n, time - 1, label], never))

    return te.compute((batch,), element)


def ctc_loss(log_row: Any, lengths: Any) -> Any:
    (batch,) = shape_of(log_row)
    n = te.reduce_axis((0, batch), "n")
    dtype = str(log_row.dtype)
    return te.compute((), lambda: te.sum(-log_row[n] * _share(lengths[n], batch, dtype), axis=n))


def _share(length: Any, batch: int, dtype: str) -> Any:
    """What a row's log probability weighs in the loss."""
    counted = tirx.Cast(dtype, tirx.max(length, tirx.const(1, _LABEL_TYPE)))
    return tirx.const(1.0 / batch, dtype) / counted


def _log_sum(*terms: Any) -> Any:
    """log Σ eᵗ."""
    largest = terms[0]
    for term in terms[1:]:
        largest = tirx.max(largest, term)
    total = tirx.exp(terms[0] - largest)
    for term in terms[1:]:
        total = total + tirx.exp(term - largest)
    return largest + tirx.log(total)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    batch: int
    time: int
    classes: int
    labels: int
    dtype: str

    @property
    def states(self) -> int:
        return 2 * self.labels + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One row of labels as states: blanks at even numbers, labels at odd ones."""

    sizes: _Sizes
    labels: Any
    lengths: Any
    n: Any

    @property
    def last(self) -> Any:
        return self.lengths[self.n] * 2

    def spelt(self, state: Any) -> Any:
        """The class that the state puts out; for a state behind the row's end any class.

        Within bounds whatever the label is: schedules ask what part of a buffer is read.
        """
        label = self.labels[self.n, tirx.min(state // 2, self.sizes.labels - 1)]
        blank, highest = (tirx.const(c, _LABEL_TYPE) for c in (BLANK, self.sizes.classes - 1))
        return tirx.min(tirx.max(tirx.Select(state % 2 == 1, label, blank), blank), highest)

    def may_skip(self, state: Any) -> Any:
        """Whether a path may come from two states before: over a blank, between two labels that differ."""
        before = self.labels[self.n, tirx.max(tirx.min(state // 2, self.sizes.labels - 1) - 1, 0)]
        return tirx.all(state % 2 == 1, state >= 2, self.spelt(state) != before)


def _never(sizes: _Sizes) -> Any:
    return tirx.const(_IMPOSSIBLE, sizes.dtype)


def _arguments(sizes: _Sizes) -> tuple[Any, Any, Any]:
    return (
        tir_script.arg("log_p", tir_script.buffer((sizes.batch, sizes.time, sizes.classes), sizes.dtype)),
        tir_script.arg("labels", tir_script.buffer((sizes.batch, sizes.labels), _LABEL_TYPE)),
        tir_script.arg("lengths", tir_script.buffer((sizes.batch,), _LABEL_TYPE)),
    )


def _recursion(sizes: _Sizes, name: str, at: Callable[[Any, Any, _Row, Any, Any], tuple[Any, Any]]) -> Any:
    """A TIR function that fills (batch, time, states) in the order of its steps.

    `at(log_p, filled, row, step, state)` gives the time it writes and the value. Time and state are opaque to
    schedules: each step reads what the one before wrote.
    """
    with IRBuilder() as builder:
        with tir_script.prim_func(is_private=True, s_tir=True):
            tir_script.func_name(name)
            tir_script.func_attr({"tirx.noalias": True})
            log_p, labels, lengths = _arguments(sizes)
            filled = tir_script.arg("filled", tir_script.buffer((sizes.batch, sizes.time, sizes.states), sizes.dtype))
            with tir_script.grid(sizes.batch, sizes.time, sizes.states) as loops, tir_script.sblock("fill"):
                n = tir_script.axis.spatial(sizes.batch, loops[0])
                step = tir_script.axis.opaque(sizes.time, loops[1])
                state = tir_script.axis.opaque(sizes.states, loops[2])
                row = _Row(sizes=sizes, labels=labels, lengths=lengths, n=n)
                time, value = at(log_p, filled, row, step, state)
                tir_script.buffer_store(filled, value, [n, time, state])
        return builder.get()


def _reached(sizes: _Sizes) -> Any:
    def at(log_p: Any, filled: Any, row: _Row, step: Any, state: Any) -> tuple[Any, Any]:
        n, never = row.n, _never(sizes)
        before = tirx.max(step - 1, 0)

        def came(distance: int, is_allowed: Any) -> Any:
            return tirx.Select(is_allowed, filled[n, before, tirx.max(state - distance, 0)], never)

        ways = _log_sum(filled[n, before, state], came(1, state >= 1), came(2, row.may_skip(state)))
        start = tirx.Select(state <= 1, tirx.const(0.0, sizes.dtype), never)
        value = tirx.if_then_else(step == 0, start, ways) + log_p[n, step, row.spelt(state)]
        return step, tirx.Select(state <= row.last, value, never)

    return _recursion(sizes, "ctc_reached", at)


def _remaining(sizes: _Sizes) -> Any:
    def at(log_p: Any, filled: Any, row: _Row, step: Any, state: Any) -> tuple[Any, Any]:
        n, never = row.n, _never(sizes)
        time = sizes.time - 1 - step
        after = tirx.min(time + 1, sizes.time - 1)

        def goes(distance: int, is_allowed: Any) -> Any:
            there = tirx.min(state + distance, sizes.states - 1)
            value = filled[n, after, there] + log_p[n, after, row.spelt(there)]
            return tirx.Select(tirx.all(is_allowed, state + distance <= row.last), value, never)

        always = tirx.const(True, "bool")
        ways = _log_sum(goes(0, always), goes(1, always), goes(2, row.may_skip(state + 2)))
        is_end = tirx.all(state <= row.last, state >= row.last - 1)
        end = tirx.Select(is_end, tirx.const(0.0, sizes.dtype), never)
        return time, tirx.if_then_else(step == 0, end, ways)

    return _recursion(sizes, "ctc_remaining", at)


def _gradient(sizes: _Sizes) -> Any:
    """Softmax less the share of the row's probability that passes through each class at each time."""
    grid = (sizes.batch, sizes.time, sizes.states)
    with IRBuilder() as builder:
        with tir_script.prim_func(is_private=True, s_tir=True):
            tir_script.func_name("ctc_gradient")
            tir_script.func_attr({"tirx.noalias": True})
            log_p, labels, lengths = _arguments(sizes)
            reached, remaining = (
                tir_script.arg(n, tir_script.buffer(grid, sizes.dtype)) for n in ("reached", "remaining")
            )
            log_row = tir_script.arg("log_row", tir_script.buffer((sizes.batch,), sizes.dtype))
            result = tir_script.arg("result", tir_script.buffer((sizes.batch, sizes.time, sizes.classes), sizes.dtype))
            with tir_script.grid(sizes.batch, sizes.time, sizes.classes) as loops, tir_script.sblock("softmax"):
                n, t, k = tir_script.axis.remap("SSS", list(loops))
                share = _share(lengths[n], sizes.batch, sizes.dtype)
                tir_script.buffer_store(result, tirx.exp(log_p[n, t, k]) * share, [n, t, k])
            with tir_script.grid(*grid) as loops, tir_script.sblock("passed"):
                n, t = (tir_script.axis.spatial(grid[i], loops[i]) for i in range(2))
                state = tir_script.axis.opaque(sizes.states, loops[2])  # two states may spell one class
                spelt = _Row(sizes=sizes, labels=labels, lengths=lengths, n=n).spelt(state)
                passed = tirx.exp(reached[n, t, state] + remaining[n, t, state] - log_row[n])
                share = _share(lengths[n], sizes.batch, sizes.dtype)
                tir_script.buffer_store(result, result[n, t, spelt] - passed * share, [n, t, spelt])
        return builder.get()
