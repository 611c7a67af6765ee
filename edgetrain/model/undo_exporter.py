"""The model as its author wrote it, as far as an exporter's traces tell: done to a file before anything else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgetrain.model.evaluation_form import evaluation_form
from edgetrain.model.export_warnings import export_warnings
from edgetrain.model.restore_biases import restore_biases
from edgetrain.model.separate_roles import separate_roles
from edgetrain.model.store_constants import store_constants
from edgetrain.model.tie_copies import tie_copies


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """The model to train and to write back, what was rewritten, and what the user should know."""

    model: Any
    rewrites: tuple[str, ...]
    warnings: tuple[str, ...]


def undo_exporter(proto: Any, *, separate: Sequence[str] = (), tie: Sequence[str] = ()) -> Undone:
    """Raises as `separate_roles`. `proto` itself stays as it is."""
    evaluated = evaluation_form(proto)
    restored = restore_biases(evaluated.model)
    separated = separate_roles(store_constants(restored.model), separate=separate, tie=tie)
    tied = tie_copies(separated.model, separate=separate)
    return Undone(
        model=tied.model,
        rewrites=(*evaluated.rewrites, *restored.rewrites, *separated.rewrites, *tied.rewrites),
        warnings=(*separated.warnings, *export_warnings(proto)),
    )
