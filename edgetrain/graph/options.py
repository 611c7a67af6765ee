"""What the training graph depends on besides the model: plain values, part of the build cache's key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerOptions:
    """Hyperparameters compiled into the update kernels. The learning rate is an input: it changes every step."""

    kind: str = "sgd"  # sgd | adam | adamw
    momentum: float = 0.0
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class LossOptions:
    """What some losses take besides output and labels; the others ignore it."""

    label_smoothing: float = 0.0  # cross-entropy: the share of the target spread over all classes
    class_weights: tuple[float, ...] = ()  # cross-entropy: what a label of each class counts; empty: all the same
    has_label_rows: bool = False  # cross-entropy: a label is a row of shares of each class, not a class's number
    focal_gamma: float = 2.0  # focal: 0 is cross-entropy, more weighs the hard examples more
    temperature: float = 1.0  # kl, distillation and nt-xent: what logits or similarities are divided by
    label_length: int = 0  # ctc: labels in a row at most; 0: as many as the model has time steps
    graph: str = ""  # onnx: the loss's ONNX file in base64. Its content, for a path is no cache key


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraOptions:
    """A pair of low-rank matrices beside each matching weight: y + (alpha / rank) · (x·Aᵀ)·Bᵀ."""

    rank: int = 8
    alpha: float = 16.0
    targets: tuple[str, ...] = ("*",)  # globs over the names of matmul, Gemm and convolution weights
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseOptions:
    """The parameters that are worth most within `budget_bytes`, each at the price of `sparse.update_bytes`."""

    budget_bytes: int = 0
    scores: Mapping[str, float] | None = None  # by parameter, from `contribution.py`; None: not measured yet
    # By weight, one for each output, so that a part of them can be chosen; weights that are missing go whole or not.
    row_scores: Mapping[str, tuple[float, ...]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    batch: int
    loss: str = "cross-entropy"  # a name of `losses.LOSSES`
    loss_options: LossOptions = LossOptions()
    optimizer: OptimizerOptions = OptimizerOptions()
    update_mode: str = "full"  # a name of `trainable.SELECTORS`
    update_names: tuple[str, ...] = ()  # names: what is trained. lora: what is trained whole, beside the adapters
    update_last: int = 1  # last-k: how many layers
    lora: LoraOptions = LoraOptions()
    sparse: SparseOptions = SparseOptions()
    batchnorm: str = "train"  # train | frozen | fold
    clip_norm: float = 0.0  # 0: no clipping
    accumulate: int = 1
    input_shapes: Mapping[str, tuple[int, ...]] | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TrainOptions:
        shapes = data.get("input_shapes")
        lora, sparse = data["lora"], data["sparse"]
        rows = {n: tuple(r) for n, r in sparse["row_scores"].items()} if sparse["row_scores"] else None
        return cls(
            **{
                **data,
                "loss_options": LossOptions(
                    **{**data["loss_options"], "class_weights": tuple(data["loss_options"]["class_weights"])}
                ),
                "optimizer": OptimizerOptions(**data["optimizer"]),
                "update_names": tuple(data["update_names"]),
                "lora": LoraOptions(**{**lora, "targets": tuple(lora["targets"])}),
                "sparse": SparseOptions(
                    **{**sparse, "row_scores": {n: tuple(r) for n, r in rows.items()} if rows else None}
                ),
                "input_shapes": {n: tuple(s) for n, s in shapes.items()} if shapes else None,
            }
        )
