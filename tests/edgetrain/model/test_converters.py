"""Every converted op against onnxruntime, in float32, and whether what it becomes can be differentiated."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

from benchmarks.importing import converter_cases
from benchmarks.importing.attention_cases import ATTENTION_CASES
from benchmarks.importing.converter_cases import Array, NodeCase
from benchmarks.importing.more_converter_cases import MORE_CASES
from benchmarks.importing.signal_cases import SIGNAL_CASES
from edgetrain._tvm import Target, dtype_of, relax, runtime, tvm
from edgetrain.graph.autodiff import Tape, emit_forward, missing_gradients
from edgetrain.model.converters import CONVERTERS
from edgetrain.model.converters.fused import FUSED_CONVERTERS
from edgetrain.model.converters.quantisation import QUANTISATION_CONVERTERS
from edgetrain.model.importer import import_model
from edgetrain.model.model import Model

TOLERANCE = 1e-4
CASES = (*converter_cases.CASES, *MORE_CASES, *ATTENTION_CASES, *SIGNAL_CASES)
# These change types, so one node alone cannot be compared: `test_quantisation.py`, and `test_importer.py` for the last.
ELSEWHERE = {*QUANTISATION_CONVERTERS, "ConstantOfShape"}


def _import(case: NodeCase) -> Model:
    shapes = {n: a.shape for n, a in case.inputs.items()}
    first = next(iter(case.inputs.values()))
    return import_model(case.model(), name=case.name, batch=first.shape[0], shapes=shapes)


def _emit(builder: Any, name: str, model: Model) -> tuple[Tape, list[Any]]:
    """The model's training forward pass as a function of `builder`'s module."""
    variables = [relax.Var(str(p.name), p.ty) for p in model.function.params]
    arguments = dict(zip(model.function.params, variables, strict=True))
    with builder.function(name, variables):
        with builder.dataflow():
            tape = emit_forward(builder, model.function, arguments, model.sources, training_batchnorm=False)
            returned = builder.emit_output(relax.Tuple(list(tape.outputs)))
        builder.emit_func_output(returned)
    return tape, variables


@pytest.fixture(scope="module")
def forward() -> dict[str, Any]:
    """Every case's compiled forward pass. Compiled together where the import made no kernels of its own."""
    together = relax.BlockBuilder()
    functions: dict[str, Any] = {}
    for case in CASES:
        try:
            model = _import(case)
            has_kernels = len(model.module.functions) > 1
            builder = relax.BlockBuilder(model.module) if has_kernels else together
            _emit(builder, case.name, model)
            if has_kernels:
                functions[case.name] = _machine(builder)[case.name]
        except Exception as error:
            error.add_note(f"while importing {case.name}")
            raise
    machine = _machine(together)
    return {case.name: functions.get(case.name) or machine[case.name] for case in CASES}


def _machine(builder: Any) -> Any:
    return relax.VirtualMachine(tvm.compile(builder.get(), target=Target({"kind": "llvm"})), tvm.cpu())


def _expected(case: NodeCase) -> list[Array]:
    session = onnxruntime.InferenceSession(case.model().SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(v) for v in session.run(None, dict(case.inputs))]


@pytest.mark.compile
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_result_is_that_of_onnxruntime(case: NodeCase, forward: dict[str, Any]) -> None:
    model = _import(case)
    values = [*case.inputs.values(), *model.parameters.values()]
    results = [r.numpy() for r in forward[case.name](*(runtime.tensor(np.array(v, order="C")) for v in values))]
    for result, expected in zip(results, _expected(case), strict=True):
        assert result.shape == expected.shape
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(result, expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_whole_path_to_every_float_input_can_be_differentiated(case: NodeCase) -> None:
    tape, variables = _emit(relax.BlockBuilder(), case.name, _import(case))
    trained = [v for v in variables if dtype_of(v).startswith("float")]
    assert missing_gradients(tape, trained, tape.outputs[0]) == []


def test_every_converter_has_a_case() -> None:
    assert set(CONVERTERS) - {case.op for case in CASES} - ELSEWHERE == set()
    cases = {(case.domain, case.op) for case in CASES}
    assert set(FUSED_CONVERTERS) - cases == set()
