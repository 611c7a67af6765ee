"""One-node ONNX models, a table for each op that edgetrain converts itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

Array = npt.NDArray[Any]
IR_VERSION = 8


@dataclass(frozen=True, kw_only=True)
class NodeCase:
    """`inputs` are fed, `stored` are initializers; both in the order of the node's inputs, `""` for an omitted one."""

    name: str
    op: str
    inputs: Mapping[str, Array]
    stored: Mapping[str, Array] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    output_type: int = onnx.TensorProto.FLOAT
    other_types: int = onnx.TensorProto.FLOAT  # of outputs after the first
    opset: int = 17
    domain: str = ""

    def model(self) -> onnx.ModelProto:
        names = list(self.order) or [*self.inputs, *self.stored]
        results = [f"y{i}" for i in range(self.outputs)]
        node = helper.make_node(self.op, names, results, name=self.name, domain=self.domain, **self.attributes)
        graph = helper.make_graph(
            [node],
            self.name,
            [
                helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
                for n, a in self.inputs.items()
            ],
            [
                helper.make_tensor_value_info(n, self.output_type if i == 0 else self.other_types, None)
                for i, n in enumerate(results)
            ],
            [numpy_helper.from_array(a, n) for n, a in self.stored.items()],
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(d, v) for d, v in {self.domain: 1, "": self.opset}.items()],
            ir_version=IR_VERSION if self.opset < 19 else 9,
        )
        return onnx.shape_inference.infer_shapes(model, strict_mode=not self.domain, data_prop=True)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def positive(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).uniform(0.5, 2.0, shape).astype(np.float32)


def integers(*values: int) -> Array:
    return np.array(values, dtype=np.int64)


def scalar(value: float) -> Array:
    return np.array(value, dtype=np.float32)


def case(name: str, op: str, x: Array, *rest: Array, outputs: int = 1, opset: int = 17, **attributes: Any) -> NodeCase:
    """One fed input `x`; the rest are stored."""
    return NodeCase(
        name=name,
        op=op,
        inputs={"x": x},
        stored={f"s{i}": value for i, value in enumerate(rest)},
        attributes=attributes,
        outputs=outputs,
        output_type=attributes.get("to", onnx.TensorProto.FLOAT),
        opset=opset,
    )


def pair(name: str, op: str, a: Array, b: Array, **attributes: Any) -> NodeCase:
    """Two operands; one without the same batch is stored, since every fed input has the batch first."""
    if a.shape[0] == b.shape[0]:
        return NodeCase(name=name, op=op, inputs={"a": a, "b": b}, attributes=attributes)
    return NodeCase(name=name, op=op, inputs={"a": a}, stored={"b": b}, attributes=attributes)


def lookup(name: str, op: str, table: Array, indices: Array, **attributes: Any) -> NodeCase:
    """Indices are fed, what they look up is stored."""
    return NodeCase(
        name=name,
        op=op,
        inputs={"indices": indices},
        stored={"table": table},
        order=("table", "indices"),
        attributes=attributes,
    )


_UNIT = np.random.default_rng(1).uniform(-0.9, 0.9, (2, 3)).astype(np.float32)
_DOMAINS: Mapping[str, Array] = {
    "Acos": _UNIT,
    "Acosh": positive(2, 3) + 1,
    "Asin": _UNIT,
    "Atanh": _UNIT,
    "Log": positive(2, 3),
    "Sqrt": positive(2, 3),
    "Reciprocal": positive(2, 3),
}
_UNARY = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "Log",
    "Neg", "Reciprocal", "Sign", "Sin", "Sinh", "Sqrt", "Tan", "Relu", "Sigmoid", "Tanh", "Softplus", "Softsign",
    "HardSwish", "Mish", "Elu", "Selu", "Celu", "LeakyRelu", "HardSigmoid", "ThresholdedRelu", "Softmax", "LogSoftmax",
)  # fmt: skip

ELEMENTWISE = (
    *(case(f"{op}_plain", op, _DOMAINS.get(op, normal(2, 3)), opset=18) for op in _UNARY),
    case("Gelu_exact", "Gelu", normal(2, 5), opset=20),
    case("Gelu_tanh", "Gelu", normal(2, 5), opset=20, approximate="tanh"),
    case("Elu_alpha", "Elu", normal(2, 5), alpha=0.3),
    case("Celu_alpha", "Celu", normal(2, 5), alpha=2.5),
    case("Selu_custom", "Selu", normal(2, 5), alpha=1.5, gamma=1.2),
    case("LeakyRelu_alpha", "LeakyRelu", normal(2, 5), alpha=0.3),
    case("HardSigmoid_custom", "HardSigmoid", normal(2, 5), alpha=0.4, beta=0.3),
    case("ThresholdedRelu_alpha", "ThresholdedRelu", normal(2, 5), alpha=0.4),
    case("Softmax_axis", "Softmax", normal(2, 3, 4), axis=1),
    case("LogSoftmax_axis", "LogSoftmax", normal(2, 3, 4), axis=1),
    case("PRelu_channels", "PRelu", normal(2, 3, 4, 4), normal(3, 1, 1)),
    case("PRelu_one", "PRelu", normal(2, 3, 4), normal(1)),
    case("PRelu_last", "PRelu", normal(2, 3, 4), normal(4)),
    case("PRelu_features", "PRelu", normal(2, 3), normal(3)),
    case("Clip_both", "Clip", normal(2, 5), scalar(-0.5), scalar(0.5)),
    case("Clip_low", "Clip", normal(2, 5), scalar(-0.5)),
    NodeCase(
        name="Clip_high", op="Clip", inputs={"x": normal(2, 5)}, stored={"high": scalar(0.5)}, order=("x", "", "high")
    ),
    *(
        pair(f"{op}_broadcast", op, normal(2, 1, 3), positive(4, 1))
        for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean")
    ),
    *(
        NodeCase(name=f"{op}_three", op=op, inputs={n: normal(2, 3, seed=i) for i, n in enumerate("abc")})
        for op in ("Max", "Min", "Sum", "Mean")
    ),
    *(
        case(f"Pow_{value:g}".replace("-", "minus_").replace(".", "_"), "Pow", positive(2, 3), scalar(value))
        for value in (-1.0, -0.5, 0.5, 1.0, 2.0, 3.0, 2.5)
    ),
    case("Pow_integer", "Pow", normal(2, 3), integers(2)),
    pair("Pow_dynamic", "Pow", positive(2, 3), normal(2, 3)),
    case("Cast_integer", "Cast", normal(2, 3) * 4, to=onnx.TensorProto.INT32),
    case("CastLike_same", "CastLike", normal(2, 3), scalar(1.0)),
    case("Shrink_soft", "Shrink", normal(4, 5), bias=0.4, lambd=0.4),
    case("Shrink_hard", "Shrink", normal(4, 5)),
    case("Cast_double", "Cast", normal(2, 3), to=onnx.TensorProto.DOUBLE),
)

_POOLS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "strided": {"strides": [2, 2]},
    "padded": {"strides": [2, 1], "pads": [1, 0, 1, 1]},
    "ceiling": {"strides": [3, 3], "ceil_mode": 1},
    "ceiling_padded": {"strides": [2, 2], "pads": [1, 1, 1, 0], "ceil_mode": 1},
    "same_upper": {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
    "valid": {"strides": [2, 2], "auto_pad": "VALID"},
}

WINDOWS = (
    case("Conv_bias", "Conv", normal(2, 3, 6, 6), normal(4, 3, 3, 3), normal(4), pads=[1, 1, 1, 1]),
    case("Conv_strided", "Conv", normal(1, 2, 7, 8), normal(2, 2, 3, 2), strides=[2, 3], pads=[0, 1, 2, 0]),
    case("Conv_depthwise", "Conv", normal(1, 3, 5, 5), normal(3, 1, 3, 3), group=3, dilations=[2, 1]),
    case("Conv_same_upper", "Conv", normal(1, 2, 7, 6), normal(2, 2, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2]),
    case("Conv_same_lower", "Conv", normal(1, 2, 7, 6), normal(2, 2, 2, 2), auto_pad="SAME_LOWER", strides=[1, 1]),
    case("Conv_valid", "Conv", normal(1, 2, 7, 6), normal(2, 2, 3, 3), auto_pad="VALID"),
    case("Conv_one_axis", "Conv", normal(2, 3, 9), normal(4, 3, 3), normal(4), strides=[2], pads=[1, 2]),
    case("Conv_one_axis_dilated", "Conv", normal(2, 4, 9), normal(4, 1, 3), group=4, dilations=[2]),
    case("ConvTranspose_plain", "ConvTranspose", normal(1, 3, 4, 5), normal(3, 2, 3, 3), normal(2)),
    case(
        "ConvTranspose_strided",
        "ConvTranspose",
        normal(1, 3, 4, 5),
        normal(3, 2, 3, 3),
        strides=[2, 3],
        pads=[1, 0, 0, 1],
        output_padding=[1, 0],
    ),
    case("ConvTranspose_groups", "ConvTranspose", normal(1, 4, 4, 4), normal(4, 2, 2, 2), group=2, strides=[2, 2]),
    case(
        "ConvTranspose_same_upper",
        "ConvTranspose",
        normal(1, 2, 4, 4),
        normal(2, 2, 3, 3),
        strides=[2, 2],
        auto_pad="SAME_UPPER",
    ),
    case(
        "ConvTranspose_output_shape",
        "ConvTranspose",
        normal(1, 2, 4, 4),
        normal(2, 2, 3, 3),
        strides=[2, 2],
        output_shape=[8, 8],
    ),
    case("ConvTranspose_one_axis", "ConvTranspose", normal(1, 2, 5), normal(2, 3, 4), strides=[2], pads=[1, 1]),
    *(
        case(f"{op}_{name}", op, normal(1, 2, 7, 6), kernel_shape=[3, 2], **geometry)
        for op in ("MaxPool", "AveragePool")
        for name, geometry in _POOLS.items()
    ),
    case("MaxPool_dilated", "MaxPool", normal(1, 2, 7, 6), kernel_shape=[2, 2], dilations=[2, 3]),
    case("MaxPool_one_axis", "MaxPool", normal(1, 2, 9), kernel_shape=[3], strides=[2], pads=[1, 0]),
    case(
        "MaxPool_last_window_dropped", "MaxPool", normal(1, 1, 3, 3), kernel_shape=[1, 1], strides=[2, 2], ceil_mode=1
    ),
    case("AveragePool_one_axis", "AveragePool", normal(1, 2, 9), kernel_shape=[3], strides=[2]),
    case(
        "AveragePool_padding_counted",
        "AveragePool",
        normal(1, 2, 6, 6),
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        count_include_pad=1,
    ),
    case("GlobalAveragePool_images", "GlobalAveragePool", normal(2, 3, 4, 5)),
    case("GlobalMaxPool_images", "GlobalMaxPool", normal(2, 3, 4, 5)),
    case("GlobalAveragePool_sequence", "GlobalAveragePool", normal(2, 3, 5)),
)

NORMALISATIONS = (
    case(
        "BatchNormalization_images", "BatchNormalization", normal(2, 3, 4, 4), *(positive(3, seed=i) for i in range(4))
    ),
    case(
        "BatchNormalization_features",
        "BatchNormalization",
        normal(4, 3),
        *(positive(3, seed=i) for i in range(4)),
        epsilon=0.1,
    ),
    case("LayerNormalization_last", "LayerNormalization", normal(2, 3, 5), positive(5), normal(5)),
    case("LayerNormalization_two_axes", "LayerNormalization", normal(2, 3, 5), positive(3, 5), normal(3, 5), axis=1),
    case("LayerNormalization_no_bias", "LayerNormalization", normal(2, 3, 5), positive(5), epsilon=0.01),
    case("InstanceNormalization_images", "InstanceNormalization", normal(2, 3, 4, 4), positive(3), normal(3)),
    case("InstanceNormalization_sequence", "InstanceNormalization", normal(2, 3, 6), positive(3), normal(3)),
    case(
        "GroupNormalization_per_channel",
        "GroupNormalization",
        normal(2, 6, 3, 3),
        positive(6),
        normal(6),
        opset=21,
        num_groups=3,
    ),
    case(
        "GroupNormalization_per_group",
        "GroupNormalization",
        normal(2, 6, 3, 3),
        positive(3),
        normal(3),
        opset=18,
        num_groups=3,
    ),
    case("MeanVarianceNormalization_image", "MeanVarianceNormalization", normal(2, 3, 4, 5), axes=[0, 2, 3]),
    case("MeanVarianceNormalization_rows", "MeanVarianceNormalization", normal(3, 5), axes=[1]),
    case("LpNormalization_two", "LpNormalization", normal(2, 5), axis=1),
    case("LpNormalization_one", "LpNormalization", normal(2, 5), axis=-1, p=1),
)

LAYOUTS = (
    case("Flatten_default", "Flatten", normal(2, 3, 4)),
    case("Flatten_axis", "Flatten", normal(2, 3, 4), axis=2),
    case("Flatten_all", "Flatten", normal(2, 3, 4), axis=0),
    case("Flatten_end", "Flatten", normal(2, 3, 4), axis=3),
    case("Flatten_negative", "Flatten", normal(2, 3, 4), axis=-1),
    case("Reshape_inferred", "Reshape", normal(2, 3, 4), integers(0, -1)),
    case("Reshape_plain", "Reshape", normal(2, 3, 4), integers(2, 2, 6)),
    case("Transpose_default", "Transpose", normal(2, 3, 4)),
    case("Transpose_order", "Transpose", normal(2, 3, 4), perm=[1, 0, 2]),
    case("Squeeze_axes", "Squeeze", normal(2, 1, 3, 1), integers(1, -1)),
    case("Squeeze_all", "Squeeze", normal(2, 1, 3, 1)),
    case("Unsqueeze_axes", "Unsqueeze", normal(2, 3), integers(0, -1)),
    pair("Concat_axis", "Concat", normal(2, 3), normal(2, 4), axis=1),
    pair("Concat_negative", "Concat", normal(2, 3), normal(2, 4), axis=-1),
    case("Concat_one", "Concat", normal(2, 3), axis=0),
    case("Split_even", "Split", normal(2, 6), axis=1, outputs=3),
    case("Split_sizes", "Split", normal(2, 6), integers(1, 2, 3), axis=1, outputs=3),
    case("Split_uneven", "Split", normal(2, 7), axis=1, outputs=3, opset=18, num_outputs=3),
    case("Slice_range", "Slice", normal(5, 6), integers(1, 0), integers(4, 5)),
    case("Slice_axes", "Slice", normal(5, 6), integers(-3), integers(2**62), integers(1)),
    case("Slice_steps", "Slice", normal(5, 6), integers(0), integers(6), integers(-1), integers(2)),
    case("Slice_backwards", "Slice", normal(5, 6), integers(-1), integers(-(2**62)), integers(1), integers(-1)),
    case("Slice_backwards_steps", "Slice", normal(5, 6), integers(4), integers(0), integers(1), integers(-2)),
    case("Slice_everything", "Slice", normal(5, 6), integers(0), integers(5), integers(0)),
    case("Pad_constant", "Pad", normal(2, 3), integers(0, 1, 1, 2), scalar(1.5)),
    case("Pad_zero", "Pad", normal(2, 3), integers(1, 0, 0, 2)),
    case("Pad_crop", "Pad", normal(4, 5), integers(-1, 1, 0, -2)),
    case("Pad_reflect", "Pad", normal(2, 4), integers(0, 2, 0, 3), mode="reflect"),
    case("Pad_edge", "Pad", normal(2, 4), integers(1, 2, 0, 3), mode="edge"),
    case("Pad_axes", "Pad", normal(2, 3, 4), integers(1, 2), scalar(0.0), integers(1), opset=18),
    case("Expand_new_axes", "Expand", normal(3, 1), integers(2, 1, 4)),
    case("Tile_repeats", "Tile", normal(2, 3), integers(2, 3)),
    case("DepthToSpace_default", "DepthToSpace", normal(1, 8, 2, 3), blocksize=2),
    case("DepthToSpace_crd", "DepthToSpace", normal(1, 8, 2, 3), blocksize=2, mode="CRD"),
    case("SpaceToDepth_plain", "SpaceToDepth", normal(1, 2, 4, 6), blocksize=2),
    case("Trilu_upper", "Trilu", normal(4, 4)),
    case("Trilu_lower", "Trilu", normal(2, 4, 4), np.array(1, np.int64), upper=0),
    case("Gather_row", "Gather", normal(5, 3), np.array(2, np.int64)),
    case("Gather_last_token", "Gather", normal(2, 4, 3), np.array(-1, np.int64), axis=1),
    case("Gather_range", "Gather", normal(6, 3), integers(1, 3, 5)),
    case("Gather_backwards", "Gather", normal(6, 3), integers(3, 2, 1, 0)),
    case("Gather_scattered", "Gather", normal(6, 3), integers(4, 0, 0, -1)),
    case("Gather_table", "Gather", normal(6, 3), np.array([[1, 2], [3, 4]], np.int64)),
    lookup("Gather_dynamic", "Gather", normal(6, 3), np.array([[1, -2], [3, 1]], np.int64)),
    lookup("GatherElements_dynamic", "GatherElements", normal(3, 4), np.array([[0, -1], [2, 2]], np.int64), axis=1),
    NodeCase(
        name="Where_mask",
        op="Where",
        inputs={"mask": np.array([[True, False, True], [False, False, True]]), "a": normal(2, 3), "b": normal(2, 1)},
    ),
    case("CumSum_plain", "CumSum", normal(2, 4), np.array(1, np.int64)),
    case("CumSum_reverse_exclusive", "CumSum", normal(2, 4), np.array(-1, np.int64), reverse=1, exclusive=1),
)

_REDUCE = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
REDUCTIONS = (
    *(case(f"Reduce{op}_all", f"Reduce{op}", positive(2, 3, 4)) for op in _REDUCE),
    *(
        case(f"Reduce{op}_axes_attribute", f"Reduce{op}", positive(2, 3, 4), axes=[0, -1], keepdims=0)
        for op in _REDUCE
        if op != "Sum"
    ),
    *(
        case(f"Reduce{op}_axes_input", f"Reduce{op}", positive(2, 3, 4), integers(1), opset=18, keepdims=0)
        for op in _REDUCE
    ),
    case("ReduceSum_nothing", "ReduceSum", normal(2, 3), noop_with_empty_axes=1),
    case("ReduceLogSumExp_large", "ReduceLogSumExp", 100 * normal(2, 6), axes=[1]),
)

PRODUCTS = (
    pair("MatMul_batched", "MatMul", normal(2, 3, 4), normal(2, 4, 5)),
    pair("MatMul_vector", "MatMul", normal(3, 4), normal(4)),
    case("Gemm_plain", "Gemm", normal(3, 4), normal(4, 5), normal(5)),
    case("Gemm_transposed", "Gemm", normal(4, 3), normal(5, 4), normal(3, 1), transA=1, transB=1, alpha=0.5, beta=2.0),
    case("Gemm_no_bias", "Gemm", normal(3, 4), normal(5, 4), transB=1),
    pair("Einsum_matmul", "Einsum", normal(3, 4), normal(4, 5), equation="ij,jk->ik"),
    pair("Einsum_attention", "Einsum", normal(2, 3, 4, 5), normal(2, 6, 4, 5), equation="bqhd,bkhd->bhqk"),
    pair("Einsum_implicit", "Einsum", normal(3, 4), normal(4, 5), equation="ij, jk"),
    pair("Einsum_outer", "Einsum", normal(3), normal(4), equation="i,j->ji"),
    pair("Einsum_summed_alone", "Einsum", normal(2, 3, 4), normal(3, 5), equation="bij,ik->bk"),
    pair("Einsum_inner", "Einsum", normal(3, 4), normal(3, 4), equation="ij,ij->"),
    pair("Einsum_dots", "Einsum", normal(2, 3, 4), normal(4, 5), equation="...ij,jk->...ik"),
    case("Einsum_transpose", "Einsum", normal(3, 4), equation="ij->ji"),
    case("Einsum_trace_free_sum", "Einsum", normal(3, 4), equation="ij->i"),
    NodeCase(
        name="Einsum_three",
        op="Einsum",
        inputs={"a": normal(2, 3)},
        stored={"b": normal(3, 4), "c": normal(4, 2)},
        attributes={"equation": "ij,jk,kl->il"},
    ),
)


def _resize(
    name: str, x: Array, *, scales: list[float] | None = None, sizes: list[int] | None = None, **attributes: Any
) -> NodeCase:
    stored = {"scales": np.array(scales, np.float32)} if scales else {"sizes": np.array(sizes, np.int64)}
    order = ("x", "", "scales") if scales else ("x", "", "", "sizes")
    return NodeCase(
        name=f"Resize_{name}", op="Resize", inputs={"x": x}, stored=stored, order=order, attributes=attributes, opset=18
    )


_IMAGE = normal(1, 2, 4, 5)
RESIZES = (
    _resize(
        "nearest_double", _IMAGE, scales=[1, 1, 2, 2], coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    ),
    _resize("nearest_default", _IMAGE, scales=[1, 1, 2, 3]),
    _resize("nearest_half", _IMAGE, scales=[1, 1, 0.5, 0.6]),
    _resize("nearest_sizes", _IMAGE, sizes=[1, 2, 7, 3], nearest_mode="round_prefer_ceil"),
    _resize(
        "nearest_ceil", _IMAGE, sizes=[1, 2, 6, 9], nearest_mode="ceil", coordinate_transformation_mode="asymmetric"
    ),
    *(
        _resize(f"linear_{mode}", _IMAGE, sizes=[1, 2, 7, 8], mode="linear", coordinate_transformation_mode=mode)
        for mode in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
    ),
    _resize("linear_scales", _IMAGE, scales=[1, 1, 1.5, 2.4], mode="linear"),
    _resize("linear_shrink", _IMAGE, scales=[1, 1, 0.5, 0.5], mode="linear"),
    _resize("cubic", _IMAGE, sizes=[1, 2, 8, 10], mode="cubic"),
    _resize("cubic_excluded", _IMAGE, sizes=[1, 2, 8, 10], mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5),
    _resize("axes", _IMAGE, scales=[2, 2], mode="linear", axes=[2, 3]),
    _resize("one_axis", normal(1, 2, 6), scales=[1, 1, 2.0], mode="linear"),
)

CASES: tuple[NodeCase, ...] = (
    *ELEMENTWISE,
    *WINDOWS,
    *NORMALISATIONS,
    *LAYOUTS,
    *REDUCTIONS,
    *PRODUCTS,
    *RESIZES,
)
