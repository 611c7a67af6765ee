"""The model a run trains: the imported one with what `update.mode` adds to it, and the parameters it updates."""

from __future__ import annotations

from dataclasses import dataclass

from edgetrain.graph.adapters import Beside
from edgetrain.graph.lora import attach_lora
from edgetrain.graph.options import TrainOptions
from edgetrain.graph.rows import attach_rows
from edgetrain.graph.sparse import choose_sparse
from edgetrain.graph.trainable import learnable, select_trainable
from edgetrain.model.model import Model


@dataclass(frozen=True, kw_only=True)
class AdaptedModel:
    model: Model
    trained: tuple[str, ...]  # in the order of the model's parameters
    adapters: tuple[Beside, ...] = ()


def adapt(model: Model, options: TrainOptions) -> AdaptedModel:
    """Raises `UsageError` when the options select nothing to train."""
    whole = select_trainable(model, options)
    adapters: tuple[Beside, ...] = ()
    adapted = model
    match options.update_mode:
        case "lora":
            adapted, adapters = attach_lora(model, options.lora, whole=whole)
        case "sparse":
            adapted, adapters = attach_rows(model, choose_sparse(model, learnable(model), options).rows)
    added = tuple(n for n in adapted.parameters if n not in model.parameters)
    return AdaptedModel(model=adapted, trained=(*whole, *added), adapters=adapters)
