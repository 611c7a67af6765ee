"""Checks gradient rules against central finite differences, in float64, on the Relax virtual machine.

A case is a Relax expression of some inputs. Its loss is a fixed random linear functional of its output, so that
every element of the Jacobian counts. All cases of a file share one compiled module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from edgetrain._tvm import Target, relax, runtime, shape_of, tvm
from edgetrain.graph.autodiff import differentiate, emit_forward

Array = npt.NDArray[Any]

STEP = 1e-5  # central differences in float64 are good to about STEP² here
TOLERANCE = 2e-7


@dataclass(frozen=True, kw_only=True)
class Case:
    """`op` maps Relax variables, one for each input, to an expression; floats not in `fixed` are differentiated."""

    name: str
    op: Callable[..., Any]
    inputs: Mapping[str, Array]
    fixed: frozenset[str] = frozenset()
    training_batchnorm: bool = True

    @property
    def trained(self) -> tuple[str, ...]:
        return tuple(n for n, a in self.inputs.items() if a.dtype.kind == "f" and n not in self.fixed)


def case_name(case: Case) -> str:
    return case.name


def generator(name: str, seed: int = 0) -> np.random.Generator:
    """Random numbers that depend on the case alone, so that adding a case changes no other."""
    return np.random.default_rng([crc32(name.encode()), seed])


def normal(*shape: int, seed: int = 0) -> Array:
    return generator(str(shape), seed).standard_normal(shape)


def distinct(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> Array:
    """Shuffled values at least (high − low) / size apart and none of them 0: safe near kinks and maxima."""
    size = int(np.prod(shape, dtype=np.int64))
    values = np.linspace(low, high, 2 * size + 2)[1::2][:size]
    return generator(str(shape), seed).permutation(values).reshape(shape)


def positive(*shape: int, seed: int = 0) -> Array:
    return generator(str(shape), seed).uniform(0.5, 2.0, shape)


@dataclass(frozen=True, kw_only=True)
class CompiledCases:
    machine: Any
    cotangents: Mapping[str, Array] = field(default_factory=dict)

    def forward(self, case: Case, inputs: Mapping[str, Array]) -> Array:
        """The output of the training forward pass."""
        return self._run(f"{case.name}_forward", inputs.values())[0]

    def stock_forward(self, case: Case) -> Array:
        """The output of the expression as TVM lowers it, without any rule of ours."""
        return self._run(f"{case.name}_stock", case.inputs.values())[0]

    def gradients(self, case: Case) -> dict[str, Array]:
        values = [*case.inputs.values(), self.cotangents[case.name]]
        return dict(zip(case.trained, self._run(f"{case.name}_gradient", values), strict=True))

    def _run(self, function: str, values: Any) -> list[Array]:
        results = self.machine[function](*(runtime.tensor(np.array(v, order="C")) for v in values))
        return [r.numpy() for r in results]


def compile_cases(cases: Sequence[Case], *, with_stock: bool = False) -> CompiledCases:
    """Compiles forward and gradient of every case into one module, and TVM's own forward `with_stock`."""
    assert len({c.name for c in cases}) == len(cases), "case names must be unique"
    builder = relax.BlockBuilder()
    cotangents = {}
    for case in cases:
        try:
            source = _source_function(case)
            if with_stock:
                builder.add_func(source, f"{case.name}_stock")
            cotangents[case.name] = _add_case(builder, case, source)
        except Exception as error:
            error.add_note(f"while building case {case.name}")
            raise
    executable = tvm.compile(builder.get(), target=Target({"kind": "llvm"}))
    return CompiledCases(machine=relax.VirtualMachine(executable, tvm.cpu()), cotangents=cotangents)


def _variables(case: Case) -> list[Any]:
    return [relax.Var(n, relax.TensorType(a.shape, str(a.dtype))) for n, a in case.inputs.items()]


def _add_case(builder: Any, case: Case, source: Any) -> Array:
    forward = _variables(case)
    with builder.function(f"{case.name}_forward", forward):
        with builder.dataflow():
            tape = _emit(builder, case, source, forward)
            returned = builder.emit_output(relax.Tuple([tape.outputs[0]]))
        builder.emit_func_output(returned)
    output_shape = shape_of(tape.outputs[0])
    variables, cotangent = _variables(case), relax.Var("cotangent", relax.TensorType(output_shape, "float64"))
    names = list(case.inputs)
    collected: dict[str, Any] = {}
    with builder.function(f"{case.name}_gradient", [*variables, cotangent]):
        with builder.dataflow():
            tape = _emit(builder, case, source, variables)
            differentiate(
                builder,
                tape,
                output=tape.outputs[0],
                output_gradient=cotangent,
                trained={variables[names.index(n)]: n for n in case.trained},
                on_gradient=collected.__setitem__,
            )
            returned = builder.emit_output(relax.Tuple([collected[n] for n in case.trained]))
        builder.emit_func_output(returned)
    return np.asarray(generator(case.name).standard_normal(output_shape))


def _source_function(case: Case) -> Any:
    """The case as an importer would hand it over: one function that returns a tuple of outputs."""
    builder, variables = relax.BlockBuilder(), _variables(case)
    with builder.function(f"{case.name}_stock", variables):
        with builder.dataflow():
            returned = builder.emit_output(relax.Tuple([builder.emit(case.op(*variables))]))
        builder.emit_func_output(returned)
    return builder.get()[f"{case.name}_stock"]


def _emit(builder: Any, case: Case, source: Any, variables: Sequence[Any]) -> Any:
    arguments = dict(zip(source.params, variables, strict=True))
    return emit_forward(builder, source, arguments, {}, training_batchnorm=case.training_batchnorm)


def finite_differences(compiled: CompiledCases, case: Case) -> dict[str, Array]:
    """d (cotangent · output) / d input, one element at a time."""
    cotangent = compiled.cotangents[case.name]
    result = {}
    for name in case.trained:
        gradient = np.zeros(case.inputs[name].shape)
        for index in np.ndindex(gradient.shape):
            ends = []
            for sign in (1.0, -1.0):
                moved = case.inputs[name].copy()
                moved[index] += sign * STEP
                ends.append(compiled.forward(case, {**case.inputs, name: moved}))
            gradient[index] = np.sum((ends[0] - ends[1]) * cotangent) / (2 * STEP)
        result[name] = gradient
    return result


def assert_gradient(compiled: CompiledCases, case: Case) -> None:
    """The rule's gradients are the finite differences, for every input, within `TOLERANCE` of the largest element."""
    expected = finite_differences(compiled, case)
    for name, gradient in compiled.gradients(case).items():
        scale = max(1.0, float(np.abs(expected[name]).max(initial=0.0)))
        np.testing.assert_allclose(
            gradient, expected[name], rtol=0.0, atol=TOLERANCE * scale, err_msg=f"{case.name}: gradient of {name}"
        )
