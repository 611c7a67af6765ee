"""LoRA: a frozen weight gets two small trained matrices beside it (Hu et al., 2021, arXiv:2106.09685).

The merged weight never exists during training: the product with x goes through the narrow middle, so what is kept
for the backward pass is `rank` values a row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any
from zlib import crc32

import numpy as np

from edgetrain._tvm import dtype_of, relax
from edgetrain.errors import UsageError
from edgetrain.graph.adapters import Adapter
from edgetrain.graph.options import LoraOptions
from edgetrain.graph.products import Layout, ProductWeight, product_weights
from edgetrain.graph.rewrite import Replace, replace_calls
from edgetrain.model.model import Array, Model
from edgetrain.model.tensor_names import onnx_name


def attach_lora(model: Model, options: LoraOptions, *, whole: Sequence[str] = ()) -> tuple[Model, tuple[Adapter, ...]]:
    """The model with an adapter at every weight that a glob of `options.targets` matches, and the adapters.

    Its outputs are the model's own at first, for B is 0. Weights named in `whole` are trained themselves and get none.
    Raises `UsageError` when no weight matches that can have an adapter.
    """
    able = [w for w in product_weights(model) if w.name not in whole]
    chosen = [w for w in able if any(fnmatchcase(onnx_name(w.name), glob) for glob in options.targets)]
    if not chosen:
        examples = ", ".join(f"`{onnx_name(w.name)}`" for w in able[:5])
        raise UsageError(
            f"update.targets = {list(options.targets)} match no weight that can have a LoRA adapter",
            why=f"adapters go beside weights of MatMul, Gemm and ungrouped Conv; this model has {len(able)}",
            fix=f"use globs that match one of: {examples}" if able else "set `update.mode=full` or `update.mode=bias`",
        )
    adapters: list[Adapter] = []
    added: dict[str, Array] = {}
    replacements: dict[Any, Replace] = {}
    for weight in chosen:
        adapter = _adapter(weight, options)
        adapters.append(adapter)
        added |= _initial(weight, adapter, options.seed, str(model.parameters[weight.name].dtype))
        for use in weight.uses:
            replacements[use.call] = _replacement(weight.layout, adapter)
    return replace_calls(model, replacements, added), tuple(adapters)


def _adapter(weight: ProductWeight, options: LoraOptions) -> Adapter:
    inputs = math.prod(weight.shape) // weight.outputs
    return Adapter(
        weight=weight.name,
        rank=min(options.rank, inputs, weight.outputs),  # more than the weight's own adds nothing but memory
        alpha=options.alpha,
        transposed=weight.layout is Layout.INPUTS_FIRST,
    )


def _initial(weight: ProductWeight, adapter: Adapter, seed: int, dtype: str) -> dict[str, Array]:
    """A is normal with variance 1 / inputs, so that x·Aᵀ has the scale of x; B is 0. Each weight has its own stream."""
    inputs = weight.shape[:1] if adapter.transposed else weight.shape[1:]
    rng = np.random.default_rng([seed, crc32(weight.name.encode())])
    down = rng.standard_normal((adapter.rank, *inputs)) / math.sqrt(math.prod(inputs))
    pointwise = (1, 1) if weight.layout is Layout.KERNEL else ()
    up = np.zeros((weight.outputs, adapter.rank, *pointwise))
    return {adapter.down: down.astype(dtype), adapter.up: up.astype(dtype)}


def _replacement(layout: Layout, adapter: Adapter) -> Replace:
    detour = _conv_detour if layout is Layout.KERNEL else _matmul_detour

    def replace(builder: Any, call: Any, arguments: Sequence[Any], added: Mapping[str, Any]) -> Any:
        straight = builder.emit(relax.Call(call.op, list(arguments), call.attrs, call.ty_args))
        around = detour(builder, call, arguments[0], added[adapter.down], added[adapter.up], adapter.scale)
        return builder.emit(relax.op.add(straight, around))

    return replace


def _scaled(builder: Any, value: Any, scale: float) -> Any:
    """Scales the narrow middle: fewer values than the output has."""
    return builder.emit(relax.op.multiply(value, relax.const(scale, dtype_of(value)))) if scale != 1.0 else value


def _matmul_detour(builder: Any, _call: Any, x: Any, down: Any, up: Any, scale: float) -> Any:
    middle = builder.emit(relax.op.matmul(x, builder.emit(relax.op.permute_dims(down, [1, 0]))))
    middle = _scaled(builder, middle, scale)
    return builder.emit(relax.op.matmul(middle, builder.emit(relax.op.permute_dims(up, [1, 0]))))


def _conv_detour(builder: Any, call: Any, x: Any, down: Any, up: Any, scale: float) -> Any:
    middle = builder.emit(relax.Call(call.op, [x, down], call.attrs, call.ty_args))
    return builder.emit(relax.op.nn.conv2d(_scaled(builder, middle, scale), up))
