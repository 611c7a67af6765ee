"""Running an imported model's forward pass on the Relax VM, and the same file in onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime

from edgetrain._tvm import Target, relax, runtime, tvm
from edgetrain.graph.autodiff import emit_forward
from edgetrain.model.model import Array, Model


def run(model: Model, inputs: Mapping[str, Array]) -> list[Array]:
    builder = relax.BlockBuilder(model.module)
    variables = [relax.Var(str(p.name), p.ty) for p in model.function.params]
    arguments = dict(zip(model.function.params, variables, strict=True))
    with builder.function("run", variables):
        with builder.dataflow():
            tape = emit_forward(builder, model.function, arguments, model.sources, training_batchnorm=False)
            returned = builder.emit_output(relax.Tuple(list(tape.outputs)))
        builder.emit_func_output(returned)
    machine = relax.VirtualMachine(tvm.compile(builder.get(), target=Target({"kind": "llvm"})), tvm.cpu())
    values: list[Any] = [inputs[i.name] for i in model.inputs] + list(model.parameters.values())
    return [r.numpy() for r in machine["run"](*(runtime.tensor(np.array(v, order="C")) for v in values))]


def expected(proto: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(v) for v in session.run(None, dict(inputs))]
