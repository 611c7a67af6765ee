"""Sparse update: the tensors and channels that are worth most within a memory budget.

The method is that of "On-Device Training Under 256KB" (Lin et al., 2022, arXiv:2206.15472).
What a tensor is worth comes from `contribution.py`, what it costs from the graph, and the choice is exact.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgetrain._tvm import dtype_of, relax, shape_of
from edgetrain.errors import UsageError
from edgetrain.graph.ir import DTYPE_BYTES
from edgetrain.graph.knapsack import Item, best_within
from edgetrain.graph.optimizers import state_prefixes
from edgetrain.graph.options import TrainOptions
from edgetrain.graph.products import product_weights
from edgetrain.graph.rewrite import Use, parameter_uses
from edgetrain.model.model import Model
from edgetrain.units import show_bytes, show_bytes_up

log = logging.getLogger(__name__)

# Ops whose gradient for this argument is a sum of the output's gradient: nothing of the forward pass is kept for it.
_KEEPS_NOTHING = frozenset({("relax.add", 0), ("relax.add", 1), ("relax.subtract", 0), ("relax.subtract", 1)})
SHARES = (2, 4, 8)  # a half, a quarter, an eighth of a weight's outputs, as in the paper
_NORM_SHIFT = 2  # the position of the shift in every normalisation: its gradient is such a sum, too


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseChoice:
    whole: tuple[str, ...]  # in the order of the candidates
    rows: Mapping[str, tuple[int, ...]]  # of these weights some outputs, rising


def choose_sparse(model: Model, candidates: Sequence[str], options: TrainOptions) -> SparseChoice:
    """The choice with the largest total score whose costs add up to at most the budget. Exact.

    A tensor is trained whole or not at all; a weight with `row_scores` also in one of the `SHARES` of its outputs,
    those that score highest. Outputs of one weight cost the same, so no other choice of as many is worth more.
    Raises `UsageError` when scores or the budget are missing, or when no tensor fits.
    """
    sparse = options.sparse
    if sparse.scores is None or sparse.budget_bytes <= 0:
        missing = "update.budget" if sparse.scores is not None else "the scores of a contribution analysis"
        raise UsageError(
            f"update.mode = 'sparse' needs {missing}",
            why="it selects the tensors that lower the loss most for the memory that training them takes",
            fix="set `update.budget=100kB` or the like",
        )
    costs = update_bytes(model, candidates, options)
    items = [Item(name=n, cost=costs[n], value=float(sparse.scores.get(n, 0.0)), group=n) for n in candidates]
    parts = {} if sparse.row_scores is None else _parts(model, costs, options, sparse.row_scores)
    items += [item for item, _ in parts.values()]
    chosen = best_within(items, sparse.budget_bytes)
    if not chosen:
        least = min((i.cost for i in items if i.value > 0), default=0)
        raise UsageError(
            f"update.budget = {show_bytes(sparse.budget_bytes)} is too little to train any tensor",
            why=f"the cheapest of them needs {show_bytes(least)}" if least else "every tensor scored 0",
            fix=f"set `update.budget={show_bytes_up(least)}` or more" if least else "give other training data",
        )
    spent = sum(i.cost for i in items if i.name in set(chosen))
    log.info("sparse update: %d of %d tensors, %s", len(chosen), len(candidates), show_bytes(spent))
    return SparseChoice(
        whole=tuple(n for n in chosen if n not in parts),
        rows={parts[n][0].group: parts[n][1] for n in chosen if n in parts},
    )


def _parts(
    model: Model, costs: Mapping[str, int], options: TrainOptions, row_scores: Mapping[str, tuple[float, ...]]
) -> dict[str, tuple[Item, tuple[int, ...]]]:
    """Items that train the best outputs of a weight, with their numbers; the name tells the share."""
    found = {}
    copies = 2 + len(state_prefixes(options))  # the delta is stored besides
    for weight in product_weights(model):
        if weight.name not in costs or weight.name not in row_scores:
            continue
        nbytes = int(model.parameters[weight.name].nbytes)
        activation = costs[weight.name] - nbytes * (copies - 1)
        for share in SHARES:
            rows = best_rows(row_scores[weight.name], weight.outputs // share)
            if 0 < len(rows) < weight.outputs:
                item = Item(
                    name=f"{weight.name} 1/{share}",
                    cost=nbytes // weight.outputs * len(rows) * copies + activation,
                    value=float(sum(row_scores[weight.name][row] for row in rows)),
                    group=weight.name,
                )
                found[item.name] = (item, rows)
    return found


def best_rows(scores: Sequence[float], count: int) -> tuple[int, ...]:
    """The `count` outputs that score highest, rising; of equal scores the first."""
    return tuple(sorted(sorted(range(len(scores)), key=lambda row: -scores[row])[:count]))


def update_bytes(model: Model, names: Sequence[str], options: TrainOptions) -> dict[str, int]:
    """What training each parameter takes: gradient, optimizer state, and the activation the gradient is made of.

    An activation that two trained tensors share counts for each. What the gradient passes on its way from the loss is
    not in the price, for it depends on the whole choice: the plan counts that, against the budget of the device.
    """
    copies = 1 + len(state_prefixes(options))
    kept: Counter[str] = Counter()
    for use in parameter_uses(model):
        kept[use.parameter] += _kept_bytes(use)
    return {name: int(model.parameters[name].nbytes) * copies + kept[name] for name in names}


def _kept_bytes(use: Use) -> int:
    if (use.op, use.position) in _KEEPS_NOTHING or (use.op.endswith("_norm") and use.position == _NORM_SHIFT):
        return 0
    others = [a for i, a in enumerate(use.call.args) if i != use.position and isinstance(a, relax.Var)]
    return max((_bytes(a) for a in others if isinstance(a.ty, relax.TensorType)), default=0)


def _bytes(expr: Any) -> int:
    return math.prod(shape_of(expr)) * DTYPE_BYTES[dtype_of(expr)]
