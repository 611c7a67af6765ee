"""TVM's own converters, for ops that ours do not cover: whatever they raise becomes one sentence."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

from tvm.relax.frontend.onnx import onnx_frontend

from edgetrain._tvm import relax
from edgetrain.model.converters import CannotConvert, NodeContext


@cache
def stock_ops() -> Mapping[str, Any]:
    """TVM's converters by op."""
    converters: Mapping[str, Any] = onnx_frontend._get_convert_map()
    return converters


def convert_with_stock(context: NodeContext) -> Any:
    """What TVM's converter makes of the node. Raises `CannotConvert` with the first line of what it raised."""
    node = context.node
    inputs = [context.input(i) for i in range(len(context.values))]
    noise = io.StringIO()
    try:
        converter = stock_ops()[node.op_type].get_converter(context.opset)
        with contextlib.redirect_stdout(noise), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            attributes = onnx_frontend.ONNXGraphImporter({}, "float32")._parse_attr(node.attribute)
            attributes["tvm_custom"] = {"name": node.name, "num_outputs": len(node.output)}
            result = converter(context.builder, onnx_frontend.onnx_input(inputs), attributes, [{}, {}])
            return context.builder.normalize(result) if isinstance(result, relax.Expr) else result
    except Exception as error:  # the stock converters raise everything from KeyError to TVM's InternalError
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise CannotConvert(f"the converter failed: {lines[-1][:200]}") from error
