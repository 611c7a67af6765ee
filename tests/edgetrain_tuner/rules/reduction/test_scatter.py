"""Lookups that are sorted by their rows: sums to the bit, updates behind them, in place, and what is declined."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, te, tirx, topi

from edgetrain.compiler.lower import scratch_of
from edgetrain.compiler.measure.kernel_library import KernelLibrary
from edgetrain.compiler.task_scratch import AHEAD_BYTES
from edgetrain.graph.extract import Kernel as ExtractedKernel
from edgetrain.graph.gradients.indexing import scatter_add
from edgetrain.graph.optimizers import OPTIMIZERS, Optimizer
from edgetrain.graph.options import OptimizerOptions
from edgetrain_tuner import rules
from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import find
from edgetrain_tuner.rules.reduction.scatter import Scatter
from edgetrain_tuner.rules.rule import Kernel
from edgetrain_tuner.schedule import Schedule, ScheduleRefusedError
from tests.edgetrain.processors import this_processor

pytestmark = pytest.mark.compile

Array = np.ndarray[Any, Any]

CORES = Machine(vector_bits=256, vector_registers=16, cores=2)
ALONE = Machine(vector_bits=256, vector_registers=16, cores=1)
SCALAR = Machine(vector_bits=32, vector_registers=16, cores=1)
SHAPES = [  # rows, lookups, columns
    (16, 24, 32),
    (2, 50, 64),  # two tasks share each row
    (7, 20, 5),
    (31, 3, 17),
    (1, 9, 8),
    (5, 1, 1),
]
OPTIONS: Mapping[str, OptimizerOptions] = {
    "sgd": OptimizerOptions(kind="sgd", momentum=0.0),
    "momentum": OptimizerOptions(kind="sgd", momentum=0.9, weight_decay=0.1),
    "adam": OptimizerOptions(kind="adam", weight_decay=0.1),
    "adamw": OptimizerOptions(kind="adamw", weight_decay=0.1),
}
SCALARS = {"train.learning_rate": 0.1, "train.first_correction": 0.19, "train.second_correction": 0.002}


def _scatter(rows: int, count: int, columns: int, *, before: int = 1, index_dtype: str = "int64") -> Any:
    return scatter_add(before=before, count=count, after=columns, rows=rows, dtype="float32", index_dtype=index_dtype)


def _kernel(function: Any) -> Kernel:
    return Kernel(function=function, contraction=find(function))


def _written(function: Any, tasks: int) -> Any:
    return Scatter().write(_kernel(function), CORES, {"tasks": (tasks,)})


def _type(buffer: Any) -> Any:
    return relax.TensorType([int(extent) for extent in buffer.ty.shape], str(buffer.ty.dtype))


def _placeholder(shape: Sequence[int], name: str) -> Any:
    return te.placeholder([tirx.IntImm("int64", extent) for extent in shape], "float32", name)


def _update(optimizer: Optimizer, shape: tuple[int, int]) -> Any:
    """The update's kernel, as a step has it: parameter, gradient, state and scalars, then parameter and state."""
    tensors = [_placeholder(shape, name) for name in ("parameter", "gradient", *optimizer.state)]
    scalars = [_placeholder((), name) for name in ("rate", "first", "second")[: len(optimizer.scalars)]]
    return te.create_prim_func([*tensors, *scalars, *optimizer.update(*tensors, *scalars)])


def _merged(gradient: Any, update: Any, *, outputs: int, is_kept: bool = False) -> Any:
    """One kernel of a gradient and the update that reads it second: indices, values, what else the update reads."""
    builder = relax.BlockBuilder()
    reads, writes = list(update.params)[:-outputs], list(update.params)[-outputs:]
    own = [relax.Var(f"own{n}", _type(p)) for n, p in enumerate(list(gradient.params)[:-1])]
    others = [relax.Var(f"other{n}", _type(p)) for n, p in enumerate(reads) if n != 1]
    first, second = builder.add_func(gradient, "gradient"), builder.add_func(update, "update")
    with builder.function("fused", [*own, *others], attrs={"Primitive": True}, private=True):
        with builder.dataflow():
            total = builder.emit(relax.call_tir(first, own, _type(gradient.params[-1])))
            results = relax.call_tir(second, [others[0], total, *others[1:]], [_type(p) for p in writes])
            result = builder.emit(results)
            result = builder.emit_output(relax.Tuple([total, result]) if is_kept else result)
        builder.emit_func_output(result)
    fused = builder.get().get_global_var("fused")
    arguments = [relax.Var(f"argument{n}", variable.ty) for n, variable in enumerate([*own, *others])]
    with builder.function("main", arguments):
        with builder.dataflow():
            result = builder.emit_output(relax.Call(fused, arguments))
        builder.emit_func_output(result)
    return relax.transform.FuseTIR()(builder.get())["fused"]


def _with_update(name: str, shape: tuple[int, int, int], **settings: Any) -> Any:
    optimizer, (rows, _, columns) = OPTIMIZERS[OPTIONS[name].kind](OPTIONS[name]), shape
    update = _update(optimizer, (rows, columns))
    return _merged(_scatter(*shape), update, outputs=1 + len(optimizer.state), **settings)


def _indices(random: np.random.Generator, rows: int, count: int, dtype: str = "int64") -> Array:
    """Repeated, out of bounds at both ends; of four rows and more, the third is never looked up."""
    drawn = random.integers(0, rows, count).astype(dtype)
    if rows > 3:
        drawn[drawn == 2] = 1
    drawn[0], drawn[-1] = -7, rows + 1000
    return drawn


def _lookups(shape: tuple[int, int, int]) -> list[Array]:
    random = np.random.default_rng(3)
    rows, count, columns = shape
    return [_indices(random, rows, count), random.standard_normal((count, columns), np.float32)]


def _summed(lookups: Sequence[Array], rows: int) -> Array:
    indices, values = lookups
    total = np.zeros((rows, values.shape[1]), values.dtype)
    np.add.at(total, np.clip(indices, 0, rows - 1), values)
    return total


def _state(name: str, shape: tuple[int, int, int]) -> list[Array]:
    """The parameter and its state. A second moment is never negative."""
    random = np.random.default_rng(4)
    count = 1 + len(OPTIMIZERS[OPTIONS[name].kind](OPTIONS[name]).state)
    return [np.abs(random.standard_normal((shape[0], shape[2]), np.float32)) for _ in range(count)]


def _scalars(name: str) -> list[Array]:
    scalars = OPTIMIZERS[OPTIONS[name].kind](OPTIONS[name]).scalars
    return [np.array(SCALARS[scalar], np.float32) for scalar in scalars]


def _updated(name: str, gradient: Array, state: Sequence[Array]) -> list[Array]:
    """As PyTorch documents the optimizers."""
    options, (p, *moments) = OPTIONS[name], [array.astype(np.float64) for array in state]
    rate, first, second = SCALARS.values()
    g = gradient.astype(np.float64)
    if name == "adamw":
        p = p - rate * options.weight_decay * p
    else:
        g = g + options.weight_decay * p
    if name == "sgd":
        return [p - rate * g]
    if name == "momentum":
        velocity = options.momentum * moments[0] + g
        return [p - rate * velocity, velocity]
    mean = options.beta1 * moments[0] + (1 - options.beta1) * g
    square = options.beta2 * moments[1] + (1 - options.beta2) * g * g
    return [p - rate / first * mean / (np.sqrt(square) / np.sqrt(second) + options.epsilon), mean, square]


def _run(function: Any, arrays: Sequence[Array]) -> list[Array]:
    """What the kernel computes from these inputs."""
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    compiled = tvm.compile(module, target={"kind": "llvm"})
    shapes = [tuple(int(extent) for extent in p.ty.shape) for p in function.params[len(arrays) :]]
    # Not zeros: an element that nobody writes must show.
    tensors = [tvm.runtime.tensor(a) for a in (*arrays, *(np.full(shape, np.nan, np.float32) for shape in shapes))]
    compiled["main"](*tensors)
    return [tensor.numpy() for tensor in tensors[len(arrays) :]]


def _assert_close(found: Sequence[Array], expected: Sequence[Array]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape[0] > 1], ids=str)
def test_every_sum_is_that_of_the_unsorted_lookups_to_the_bit(shape: tuple[int, int, int], tasks: int) -> None:
    function, lookups = _scatter(*shape), _lookups(shape)
    (total,) = _run(_written(function, tasks), lookups)
    np.testing.assert_array_equal(total, _run(function, lookups)[0])
    np.testing.assert_array_equal(total, _summed(lookups, shape[0]))


def test_a_table_of_one_row_gets_all_values() -> None:
    (total,) = _run(_written(_scatter(1, 9, 8), 1), _lookups((1, 9, 8)))
    np.testing.assert_array_equal(total, _summed(_lookups((1, 9, 8)), 1))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_indices_may_be_of_either_width(dtype: str) -> None:
    indices, values = _lookups((7, 20, 5))
    limits = np.iinfo(dtype)
    indices = indices.astype(dtype)
    indices[:2] = limits.min, limits.max
    (total,) = _run(_written(_scatter(7, 20, 5, index_dtype=dtype), 2), [indices, values])
    np.testing.assert_array_equal(total, _summed([indices, values], 7))


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("shape", [(7, 20, 5), (3, 20, 32)], ids=str)
def test_a_table_may_be_looked_up_along_a_later_axis(shape: tuple[int, int, int], tasks: int) -> None:
    rows, count, columns = shape
    indices, _ = _lookups(shape)
    values = np.random.default_rng(5).standard_normal((3, count, columns), np.float32)
    (total,) = _run(_written(_scatter(*shape, before=3), tasks), [indices, values])
    np.testing.assert_array_equal(total, np.stack([_summed([indices, plane], rows) for plane in values]))


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("shape", [(16, 24, 32), (2, 50, 64), (31, 3, 17)], ids=str)
@pytest.mark.parametrize("name", OPTIONS)
def test_the_update_behind_a_gradient_sees_every_sum(name: str, shape: tuple[int, int, int], tasks: int) -> None:
    function, lookups, state = _with_update(name, shape), _lookups(shape), _state(name, shape)
    found = _run(_written(function, tasks), [*lookups, *state, *_scalars(name)])
    _assert_close(found, _updated(name, _summed(lookups, shape[0]), state))


def test_a_gradient_that_is_also_wanted_by_itself_is_stored() -> None:
    shape = (16, 24, 32)
    lookups, state = _lookups(shape), _state("momentum", shape)
    function = _with_update("momentum", shape, is_kept=True)
    total, *found = _run(_written(function, 2), [*lookups, *state, *_scalars("momentum")])
    np.testing.assert_array_equal(total, _summed(lookups, shape[0]))
    _assert_close(found, _updated("momentum", total, state))


@pytest.fixture
def library(tmp_path: Path) -> Iterator[KernelLibrary]:
    library = KernelLibrary(this_processor(cores=2), threads=2, folder=tmp_path)
    yield library
    library.close()


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("shape", [(67, 24, 32), (2, 50, 64), (31, 3, 17)], ids=str)
@pytest.mark.parametrize("name", OPTIONS)
def test_parameters_and_state_are_updated_in_place(
    library: KernelLibrary, name: str, shape: tuple[int, int, int], tasks: int
) -> None:
    lookups, state, scalars = _lookups(shape), _state(name, shape), _scalars(name)
    expected = _updated(name, _summed(lookups, shape[0]), state)
    function = _written(_with_update(name, shape), tasks)
    reads = len(lookups) + len(state) + len(scalars)
    aliases = tuple((len(lookups) + n, reads + n) for n in range(len(state)))
    library.build(function, aliases).bound([*lookups, *state, *scalars, *state])()
    _assert_close(state, expected)


def test_the_table_of_sums_is_never_there_as_a_whole() -> None:
    rows, count, columns = shape = (100, 24, 48)
    function = _written(_with_update("adam", shape), 2)
    scratch = scratch_of(ExtractedKernel(symbol="k", function=function))
    lines = 2 * (4 * columns + AHEAD_BYTES)  # a task's line, and so far they are apart
    assert sorted(scratch) == sorted([4 * (rows + 1), 4 * count, lines])


def test_tasks_share_columns_where_one_row_may_be_most_of_the_work() -> None:
    assert "range(T.int64(32))" in _written(_scatter(2, 50, 64), 2).script()
    assert "range(T.int64(64))" in _written(_scatter(50, 2, 64), 2).script()
    assert "range(T.int64(33))" in _written(_scatter(2, 50, 33), 2).script()  # no two cache lines apart


def test_a_large_table_is_shared_and_a_small_one_is_not() -> None:
    assert rules.scheduled(_with_update("adam", (4096, 64, 16)), CORES)[0].parameters == {"tasks": (2,)}
    assert rules.scheduled(_with_update("adam", (64, 16, 16)), CORES)[0].parameters == {"tasks": (1,)}
    assert rules.scheduled(_with_update("adam", (4096, 64, 16)), ALONE)[0].parameters == {"tasks": (1,)}


@pytest.mark.parametrize("machine", [CORES, ALONE, SCALAR], ids=["two cores", "one core", "no vectors"])
def test_an_update_behind_the_gradient_is_worth_sorting_on_any_target(machine: Machine) -> None:
    assert rules.scheduled(_with_update("momentum", (500, 16, 16)), machine)[0].rule == "scatter"


def _proposed(function: Any, machine: Machine) -> Any:
    return Scatter().propose(_kernel(function), machine)


def test_sorting_is_left_where_it_spares_nothing() -> None:
    least = ALONE.thresholds.sorted_columns
    assert _proposed(_scatter(4096, 64, 16), CORES) is not None
    assert _proposed(_scatter(4096, 64, 16), ALONE) is None  # the table is wanted, and nobody shares the work
    assert _proposed(_with_update("adam", (4096, 64, least)), ALONE) is not None
    assert _proposed(_with_update("adam", (4096, 64, least - 1)), ALONE) is None
    assert _proposed(_with_update("adam", (2, 500, 16)), ALONE) is None  # the sort is larger than the table


def _changed(node: type, change: Callable[[Any], Any]) -> Any:
    return tvm_ffi.structural_map(_scatter(7, 20, 16), (node, change))


def _update_of(element: Callable[[Any, Any, Any, Any], Any], shape: tuple[int, int] = (7, 16)) -> Any:
    p, g = _placeholder(shape, "p"), _placeholder((7, 16), "g")
    update = te.create_prim_func([p, g, te.compute(p.shape, lambda i, j: element(p, g, i, j), name="new")])
    return _merged(_scatter(7, 20, 16), update, outputs=1)


def _te(compute: Callable[..., Any], *shapes: tuple[int, ...]) -> Any:
    inputs = [_placeholder(shape, f"x{n}") for n, shape in enumerate(shapes)]
    return te.create_prim_func([*inputs, compute(*inputs)])


OTHERS: Mapping[str, Callable[[], Any]] = {
    "a product": lambda: _te(topi.matmul, (8, 16), (16, 8)),
    "a softmax": lambda: _te(topi.nn.softmax, (8, 16)),
    "elements": lambda: _te(topi.exp, (8, 16)),
    "plain loops": lambda: _written(_scatter(7, 20, 16), 1),
    "a row that may be out of bounds": lambda: _changed(tirx.Max, lambda row: row.a),
    "sums that begin with one": lambda: _changed(tirx.FloatImm, lambda _: tirx.FloatImm("float32", 1.0)),
    "differences": lambda: _changed(tirx.Add, lambda node: node.a - node.b),
    "an update that reads another row": lambda: _update_of(lambda p, g, i, j: p[i, j] - g[6 - i, j]),
    "an update of some rows": lambda: _update_of(lambda p, g, i, j: p[i, j] - g[i, j], (6, 16)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_kernels_are_left_to_other_rules(name: str) -> None:
    kernel = _kernel(OTHERS[name]())
    assert Scatter().propose(kernel, CORES) is None
    assert Scatter().choices(kernel, CORES, "tasks", {}) == []
    with pytest.raises(ScheduleRefusedError, match="looked up"):
        Scatter().check(kernel, CORES, {"tasks": (1,)})


@pytest.mark.parametrize("tasks", [(0,), (2,), (1, 1), ()], ids=str)
def test_tasks_that_no_core_runs_are_refused(tasks: tuple[int, ...]) -> None:
    with pytest.raises(ScheduleRefusedError, match="1 cores"):
        Scatter().check(_kernel(_scatter(7, 20, 16)), ALONE, {"tasks": tasks})


def test_a_search_may_try_fewer_tasks() -> None:
    function = _with_update("sgd", (4096, 64, 16))
    shared, alone = (Schedule("scatter", {"tasks": (tasks,)}) for tasks in (2, 1))
    assert rules.neighbours(function, shared, CORES) == [("tasks", alone)]
    assert rules.refit(function, shared, ALONE) == alone


def test_the_generic_rule_still_writes_a_scattering() -> None:
    lookups = _lookups((7, 20, 5))
    schedule, function = rules.scheduled(_scatter(7, 20, 5), ALONE)
    assert schedule.rule == "generic"
    np.testing.assert_array_equal(_run(function, lookups)[0], _summed(lookups, 7))
