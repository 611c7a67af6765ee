"""What an exporter took away for good, as far as the file still shows it: BatchNorm that was folded into layers."""

from __future__ import annotations

import re
from typing import Any

EXPORT_LINE = 'torch.onnx.export(model.eval(), (x,), "model.onnx", dynamo=True, optimize=False)'
# The weight and the bias of a layer that TorchScript's exporter computed from a convolution and its BatchNorm.
_COMPUTED = re.compile(r"onnx::Conv(Transpose)?_\d+")
_RULES = "pkg.onnxscript.rewriter.rule_name"
_LAYERS = ("Conv", "ConvTranspose", "Gemm")


def export_warnings(proto: Any) -> tuple[str, ...]:
    """A line on what PyTorch's training would move and this file no longer has, with the remedy; else none."""
    folded = sum(_is_folded(node) for node in proto.graph.node if node.op_type in _LAYERS)
    if not folded:
        return ()
    layers = "one layer" if folded == 1 else f"{folded} layers"
    return (
        f"the exporter folded BatchNorm into {layers}, which now train without it; to keep it, export with "
        f"`{EXPORT_LINE}`, or pass the module itself to edgetrain.fit",
    )


def _is_folded(node: Any) -> bool:
    rules = next((entry.value for entry in node.metadata_props if entry.key == _RULES), "")
    computed = [name for name in node.input[1:3] if _COMPUTED.fullmatch(name)]
    return "FuseBatchNorm" in rules or len(computed) == 2
