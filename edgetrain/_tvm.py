"""The only file that spells TVM names that move between releases (0.27: `tir` became `tirx` and `s_tir`)."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, runtime, s_tir, te, tirx, topi
from tvm.ir import Call, TensorLoad
from tvm.ir.expr import Constant
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as tir_script
from tvm.target import Target
from tvm.tirx import PrimFunc
from tvm.tirx.compilation_pipeline import PIPELINE_MAP

VERSION: str = tvm.__version__

__all__ = [
    "PIPELINE_MAP",
    "VERSION",
    "Call",
    "Constant",
    "IRBuilder",
    "PrimFunc",
    "Target",
    "TensorLoad",
    "constant_like",
    "dtype_of",
    "ir",
    "relax",
    "runtime",
    "s_tir",
    "shape_of",
    "te",
    "tir_script",
    "tirx",
    "topi",
    "tvm",
    "tvm_ffi",
]


def shape_of(expr: Any) -> tuple[int, ...]:
    """The static shape of a Relax expression or TE tensor."""
    shape = expr.ty.shape if hasattr(expr, "ty") and hasattr(expr.ty, "shape") else expr.shape
    return tuple(int(d) for d in (shape.values if hasattr(shape, "values") else shape))


def dtype_of(expr: Any) -> str:
    return str(expr.ty.dtype)


def constant_like(value: float, like: Any) -> Any:
    """A TIR constant of the same type as `like`, a TE tensor or a TIR expression."""
    return tirx.const(value, str(like.dtype if hasattr(like, "dtype") else like.ty.dtype))
