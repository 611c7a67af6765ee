"""How a training graph calls the tensors of an ONNX file: as the file does, unless that could be a name of its own.

The graph has tensors that no file holds, such as `train.labels`, `momentum:W` and `constant.0123…`. A file may call its
tensors the same: these get a prefix inside, and their own name back wherever data comes in or a model goes out.
"""

from __future__ import annotations

import re

_PREFIX = "file:"
# Functions of a program, what the host feeds and reads; what stands beside parameters, of optimizers and adapters; and
# the scratch memory of an op.
_OWN = re.compile(
    r"(step|apply|evaluate|train|constant)\.|"
    r"(file|momentum|adam_mean|adam_square|accumulated|lora\.A|lora\.B|sparse\.rows):|"
    r"\d{4,}\..*#\d+\Z"
)


def graph_name(onnx_name: str) -> str:
    """The tensor of the graph that is the file's input or parameter of that name. No two names become one."""
    return _PREFIX + onnx_name if is_own_name(onnx_name) else onnx_name


def onnx_name(graph_name: str) -> str:
    """The inverse of `graph_name`."""
    return graph_name.removeprefix(_PREFIX)


def is_own_name(name: str) -> bool:
    """Whether graphs give such names to tensors that no file holds."""
    return _OWN.match(name) is not None
