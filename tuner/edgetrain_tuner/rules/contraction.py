"""The common form of matrix products, convolutions and their gradients: a sum of products over shared axes.

    C[s, i, j] = Σ_k A[s, i, k] · B[s, j, k]

Each of s, i, j, k stands for any number of the kernel's axes. `find` recognises that form in a kernel, whatever its ops
are called, so that one implementation serves them all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad

from edgetrain_tuner.rules.inlining import inlined
from edgetrain_tuner.rules.loops import sequence

_SPATIAL, _REDUCE = 0, 2  # tirx.IterVar.iter_type
_CHOICE = "if_then_else"
_STRIDES = (2, 3, 4)


@dataclass(frozen=True, kw_only=True)
class Axis:
    variable: Any
    extent: int


@dataclass(frozen=True, kw_only=True)
class Limit:
    """The position is inside the result only where `value` is below `extent`."""

    value: Any
    extent: int


@dataclass(frozen=True, kw_only=True)
class Epilogue:
    """What is done with each sum: `stores`, in which `axes` are its position and a load of `result` is its value.

    A later store may read what an earlier one wrote, at the element's position.
    """

    axes: tuple[Any, ...]
    result: Any
    stores: tuple[Any, ...]

    def operands_at(self, indices: Sequence[Any]) -> list[Any]:
        """Loads of one element's stores from tensors that have the shape of the result."""
        loads: list[Any] = []
        for store in self.stores:
            tvm_ffi.structural_walk(store.value, (TensorLoad, loads.append))
        made = [self.result, *(store.buffer for store in self.stores)]
        values = dict(zip(self.axes, indices, strict=True))
        return [
            replaced(load, values)
            for load in loads
            if len(load.indices) == len(self.axes)
            and all(index.same_as(axis) for index, axis in zip(load.indices, self.axes, strict=True))
            and not any(load.source.same_as(buffer) for buffer in made)
        ]

    def at(self, indices: Sequence[Any], value: Any) -> list[Any]:
        """The stores of one element."""
        values = dict(zip(self.axes, indices, strict=True))

        def on_load(load: Any) -> Any:
            return value if load.source.same_as(self.result) else load

        return [tvm_ffi.structural_map(replaced(store, values), (TensorLoad, on_load)) for store in self.stores]


@dataclass(frozen=True, kw_only=True)
class Contraction:
    """The form above. As found, `j` holds the axis along which the result is contiguous; axes of extent 1 are left out.

    `i` is empty where each element of C has a B of its own, as in a window over the channels one by one.
    """

    function: Any
    s: tuple[Axis, ...]
    i: tuple[Axis, ...]
    j: tuple[Axis, ...]
    k: tuple[Axis, ...]
    a: Any  # an element of the buffer A, as an expression of the axes
    b: Any
    result: Any  # the buffer C
    indices: tuple[Any, ...]  # where in C, as expressions of the axes
    limits: tuple[Limit, ...]
    epilogue: Epilogue | None
    present: Any | None = None  # a condition on s and k alone: where it does not hold, all products are zero

    def transposed(self) -> Contraction:
        """The same contraction with its sides exchanged: C is then contiguous along `i`."""
        return replace(self, i=self.j, j=self.i, a=self.b, b=self.a)

    def with_a(self, a: Any) -> Contraction:
        return replace(self, a=a)

    @property
    def multiply_adds(self) -> int:
        return math.prod(extent_of(axes) for axes in (self.s, self.i, self.j, self.k))

    def finished(self, indices: Sequence[Any], value: Any) -> Any:
        """The statement that stores an element of C, through the epilogue if there is one."""
        if self.epilogue is None:
            return tirx.BufferStore(self.result, value, list(indices))
        return sequence(*self.epilogue.at(indices, value))

    def rewritten(self, body: Any) -> Any:
        """The kernel with another body."""
        original = self.function
        return tirx.PrimFunc(original.params, body, original.ret_type, original.attrs).without_attr("global_symbol")


def extent_of(axes: Sequence[Axis]) -> int:
    return math.prod(axis.extent for axis in axes)


def values_of(axes: Sequence[Axis], indices: Sequence[Any]) -> dict[Any, Any]:
    return {axis.variable: index for axis, index in zip(axes, indices, strict=True)}


def uses(expression: Any, variable: Any) -> bool:
    found = False

    def visit(node: Any) -> None:
        nonlocal found
        found = found or node.same_as(variable)

    tvm_ffi.structural_walk(expression, (tirx.Var, visit))
    return found


def replaced(expression: Any, values: Mapping[Any, Any]) -> Any:
    """The expression or statement with each variable replaced by its value."""
    pairs = list(values.items())

    def on_variable(variable: Any) -> Any:
        return next((value for name, value in pairs if variable.same_as(name)), variable)

    return tvm_ffi.structural_map(expression, (tirx.Var, on_variable))


def simplified_load(load: Any) -> Any:
    """The same load with simplified indices: some of TVM's passes fail on terms that cancel out."""
    analyzer = tvm.sym.Analyzer()
    return load.source[tuple(analyzer.simplify(index) for index in load.indices)]


def is_known(expression: Any, values: Mapping[Any, Any]) -> bool:
    """Whether there is a value for every variable of the expression."""
    return all(any(variable.same_as(name) for name in values) for variable in variables_of(expression))


def is_contiguous(load: Any, axis: Axis) -> bool:
    """Whether the next element along `axis` is the next one in memory."""
    return isinstance(load, TensorLoad) and _is_run(load.source, load.indices, axis)


def is_stored_along(contraction: Contraction, axis: Axis) -> bool:
    """Whether the next element of the result along `axis` is the next one in memory."""
    return _is_run(contraction.result, contraction.indices, axis)


def _is_run(buffer: Any, indices: Sequence[Any], axis: Axis) -> bool:
    # Axes of one element are none: a weight of a 1x1 convolution is contiguous along its channels.
    sized = [index for index, extent in zip(indices, buffer.ty.shape, strict=True) if int(extent) > 1]
    used = [uses(index, axis.variable) for index in sized]
    if not used or not used[-1] or any(used[:-1]):
        return False
    slope = tvm.sym.detect_linear_equation(sized[-1], [axis.variable])
    return bool(slope) and isinstance(slope[0], tirx.IntImm) and abs(int(slope[0])) == 1


def bytes_read(expression: Any) -> int:
    """Of the float32 buffers that the expression loads from, all of each."""
    loads: list[Any] = []
    tvm_ffi.structural_walk(expression, (TensorLoad, loads.append))
    return sum(4 * math.prod(int(extent) for extent in load.source.ty.shape) for load in loads)


def find(function: Any) -> Contraction | None:
    """The contraction that the kernel computes, with at most elementwise work behind it; None for any other kernel."""
    kernel = inlined(function)
    if kernel is None or not kernel.blocks:
        return None
    first, *behind = kernel.blocks
    epilogue = epilogue_of(kernel.function, behind, first) if behind else None
    if behind and epilogue is None:
        return None
    return _contraction(kernel.function, first, epilogue)


def _contraction(function: Any, block: Any, epilogue: Epilogue | None) -> Contraction | None:
    product = summed_product(block)
    if product is None:
        return None
    indices = tuple(block.body.indices)
    axes = [(Axis(variable=a.var, extent=int(a.dom.extent)), int(a.iter_type)) for a in block.iter_vars]
    last = [axis for axis, kind in axes if kind == _SPATIAL and axis.extent > 1][-1:]
    form = _Form(axes=axes, factors=list(product), indices=indices)
    for axis, kind in list(form.axes):
        if kind == _SPATIAL and axis.extent > 1 and all(uses(factor, axis.variable) for factor in form.factors):
            form = form.with_strides_apart(axis)
    groups = form.groups()
    if groups is None or not last or not groups["k"]:
        return None
    is_right = any(form.comes_from(axis, last[0]) for axis in groups["right"])
    if not is_right and not any(form.comes_from(axis, last[0]) for axis in groups["left"]):
        return None
    a, b = form.factors if is_right else reversed(form.factors)
    if not isinstance(a, TensorLoad) or not all(_is_float(x) for x in (a, b, block.body.value)):
        return None
    i, j = ("left", "right") if is_right else ("right", "left")
    shared = [axis.variable for axis in (*groups["s"], *groups["k"])]
    return Contraction(
        function=function,
        s=tuple(groups["s"]),
        i=tuple(groups[i]),
        j=tuple(groups[j]),
        k=tuple(groups["k"]),
        a=form.clamped(a),
        b=b,
        result=block.body.buffer,
        indices=form.indices,
        limits=form.limits,
        epilogue=epilogue,
        present=_condition_on(b, shared),
    )


def _condition_on(factor: Any, variables: Sequence[Any]) -> Any | None:
    """The part of the factor's guard that depends on these variables alone."""
    known = dict.fromkeys(variables)
    parts = [part for part in conjuncts(unguarded(factor)[0]) if is_known(part, known)]
    return tirx.all(*parts) if parts else None


def conjuncts(condition: Any | None) -> list[Any]:
    """The conditions that a conjunction consists of; none for None."""
    if condition is None:
        return []
    if isinstance(condition, tirx.And):
        return [*conjuncts(condition.a), *conjuncts(condition.b)]
    return [condition]


@dataclass(frozen=True, kw_only=True)
class _Form:
    """A sum of products under analysis: axes with their kinds, two factors, the place of the result."""

    axes: list[tuple[Axis, int]]
    factors: list[Any]
    indices: tuple[Any, ...]
    limits: tuple[Limit, ...] = ()
    origins: Mapping[Any, Any] = field(default_factory=dict)  # of axes that were made from another

    def __post_init__(self) -> None:
        object.__setattr__(self, "factors", [self._simple(factor) for factor in self.factors])
        object.__setattr__(self, "indices", tuple(self._simple(index) for index in self.indices))
        limits = tuple(Limit(value=self._simple(m.value), extent=m.extent) for m in self.limits)
        object.__setattr__(self, "limits", limits)

    def _simple(self, expression: Any) -> Any:
        units = {a.variable: tirx.IntImm(a.variable.ty.dtype, 0) for a, _ in self.axes if a.extent == 1}
        return self._analyzer().simplify(replaced(expression, units))

    def _analyzer(self) -> Any:
        analyzer = tvm.sym.Analyzer()
        for axis, _ in self.axes:
            analyzer.bind(axis.variable, tvm.ir.Range(0, axis.extent))
        return analyzer

    def with_strides_apart(self, axis: Axis) -> _Form:
        """The form with `axis` = n · part + phase, for the least n after which one factor does not depend on the part.

        So a strided convolution's data gradient becomes one contraction for each phase of the stride, with no product
        that is known to be zero. The same form if no n will do.
        """
        for count in _STRIDES:
            part = Axis(variable=tirx.Var("part", axis.variable.ty.dtype), extent=-(-axis.extent // count))
            phase = Axis(variable=tirx.Var("phase", axis.variable.ty.dtype), extent=count)
            whole = part.variable * count + phase.variable
            place = [a.variable.same_as(axis.variable) for a, _ in self.axes].index(True)
            swap = {axis.variable: whole}
            limits = tuple(Limit(value=replaced(m.value, swap), extent=m.extent) for m in self.limits)
            if axis.extent % count:
                limits += (Limit(value=whole, extent=axis.extent),)
            form = _Form(
                axes=[*self.axes[:place], (phase, _SPATIAL), (part, _SPATIAL), *self.axes[place + 1 :]],
                factors=[replaced(factor, swap) for factor in self.factors],
                indices=tuple(replaced(index, swap) for index in self.indices),
                limits=limits,
                origins={**self.origins, part.variable: axis.variable},
            )
            if not all(uses(factor, part.variable) for factor in form.factors):
                return form
        return self

    def comes_from(self, axis: Axis, original: Axis) -> bool:
        return any(
            v.same_as(original.variable)
            for v in (axis.variable, *(o for n, o in self.origins.items() if n.same_as(axis.variable)))
        )

    def groups(self) -> dict[str, list[Axis]] | None:
        found: dict[str, list[Axis]] = {"s": [], "left": [], "right": [], "k": []}
        for axis, kind in self.axes:
            if axis.extent == 1:
                continue
            group = _group(kind, *(uses(factor, axis.variable) for factor in self.factors))
            if group is None:
                return None
            found[group].append(axis)
        return found

    def clamped(self, load: Any) -> Any:
        """The load with indices clamped to the buffer: its guard may have moved to the other factor."""
        analyzer = self._analyzer()
        indices = []
        for index, extent in zip(load.indices, load.source.ty.shape, strict=True):
            if not analyzer.can_prove(index >= 0):
                index = tirx.max(index, 0)
            if not analyzer.can_prove(index < extent):
                index = tirx.min(index, extent - 1)
            indices.append(index)
        return load.source[tuple(indices)]


def _group(kind: int, in_left: bool, in_right: bool) -> str | None:
    if kind == _REDUCE:
        return "k" if in_left and in_right else None
    if kind != _SPATIAL or not (in_left or in_right):
        return None
    return "s" if in_left and in_right else "left" if in_left else "right"


def _is_float(expression: Any) -> bool:
    return str(expression.ty.dtype) == "float32"


def summed_product(block: Any) -> tuple[Any, Any] | None:
    """The two factors of a block that adds products up from zero."""
    body, init = block.body, block.init
    if not isinstance(body, tirx.BufferStore) or not isinstance(init, tirx.BufferStore):
        return None
    if (
        not isinstance(init.value, tirx.FloatImm)
        or float(init.value.value) != 0.0
        or not isinstance(body.value, tirx.Add)
    ):
        return None
    total, term = body.value.a, body.value.b
    if not (isinstance(total, TensorLoad) and total.source.same_as(body.buffer)):
        return None
    condition, product = unguarded(term)
    if not isinstance(product, tirx.Mul):
        return None
    if condition is None:
        return product.a, product.b
    # The guard moves to the factor whose variables it tests. (0 · x is not 0 for an infinite x, but where the guard
    # does not hold there is no x.)
    for guarded, other in ((product.a, product.b), (product.b, product.a)):
        if all(uses(guarded, variable) for variable in variables_of(condition)):
            zero = tirx.FloatImm("float32", 0.0)
            moved = tirx.if_then_else(condition, guarded, zero)
            return (moved, other) if guarded is product.a else (other, moved)
    return None


def unguarded(term: Any) -> tuple[Any, Any]:
    """The condition under which `term` is not zero, and its value then; None and `term` itself if there is none."""
    if isinstance(term, tirx.Select):
        condition, value, otherwise = term.condition, term.true_value, term.false_value
    elif isinstance(term, Call) and str(getattr(term.op, "name", "")).endswith(_CHOICE):
        condition, value, otherwise = term.args
    else:
        return None, term
    is_zero = isinstance(otherwise, tirx.FloatImm) and float(otherwise.value) == 0.0
    return (condition, value) if is_zero else (None, term)


def variables_of(expression: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(expression, (tirx.Var, found.append))
    return [v for v in found if not isinstance(v.ty, tirx.BufferType)]


def epilogue_of(function: Any, blocks: Sequence[Any], before: Any) -> Epilogue | None:
    """The elementwise blocks behind the sum, if that is what they are: each makes a result of the kernel.

    Each reads the sum, or what one before it made, at its own position, and does so for all elements.
    """
    if not isinstance(before.body, tirx.BufferStore):
        return None
    result = before.body.buffer
    axes = tuple(axis.var for axis in blocks[0].iter_vars)
    written, stores = [result], []
    for block in blocks:
        is_spatial = all(int(axis.iter_type) == _SPATIAL for axis in block.iter_vars)
        is_whole = [int(axis.dom.extent) for axis in block.iter_vars] == [int(extent) for extent in result.ty.shape]
        if not is_spatial or not is_whole or not isinstance(block.body, tirx.BufferStore):
            return None
        if not any(block.body.buffer.same_as(parameter) for parameter in function.params):
            return None
        loads: list[Any] = []
        tvm_ffi.structural_walk(block.body.value, (TensorLoad, loads.append))
        known = [load for load in loads if any(load.source.same_as(buffer) for buffer in written)]
        if not known or not all(_is_at(load.indices, block.iter_vars) for load in known):
            return None
        if block is not blocks[-1] and not _is_at(block.body.indices, block.iter_vars):
            return None
        written.append(block.body.buffer)
        stores.append(replaced(block.body, dict(zip((axis.var for axis in block.iter_vars), axes, strict=True))))
    return Epilogue(axes=axes, result=result, stores=tuple(stores))


def _is_at(indices: Sequence[Any], axes: Sequence[Any]) -> bool:
    """Whether the indices are the block's own position; along an axis of one element they always are."""
    if len(indices) != len(axes):
        return False
    positions = zip(indices, axes, strict=True)
    return all(int(axis.dom.extent) == 1 or index.same_as(axis.var) for index, axis in positions)
