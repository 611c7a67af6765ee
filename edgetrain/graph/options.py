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
class TrainOptions:
    batch: int
    loss: str = "cross-entropy"  # cross-entropy | bce | mse | l1
    optimizer: OptimizerOptions = OptimizerOptions()
    update_mode: str = "full"  # full | head | bias | names
    update_names: tuple[str, ...] = ()
    batchnorm: str = "train"  # train | frozen
    clip_norm: float = 0.0  # 0: no clipping
    accumulate: int = 1
    input_shapes: Mapping[str, tuple[int, ...]] | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TrainOptions:
        shapes = data.get("input_shapes")
        return cls(
            **{
                **data,
                "optimizer": OptimizerOptions(**data["optimizer"]),
                "update_names": tuple(data["update_names"]),
                "input_shapes": {n: tuple(s) for n, s in shapes.items()} if shapes else None,
            }
        )
