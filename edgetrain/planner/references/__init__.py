"""What the planner is compared with: brute force, published baselines, and published instances with known optima.

Users can name the baselines (`--solver poet`), which run as published; nothing of the product's own planning depends on
them.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgetrain.planner.references.per_tensor import (
    answer_capuchin,
    answer_sqrt_n,
    answer_swap_all,
    capuchin_floor,
    sqrt_n_floor,
    swap_all_floor,
)
from edgetrain.planner.references.poet import answer_poet
from edgetrain.planner.solvers.greedy import answer_hurriedly, smallest_feasible
from edgetrain.planner.solvers.milp import answer_checkmate
from edgetrain.planner.solvers.solver import Solver

REFERENCES: Mapping[str, Solver] = {
    "keep-all": Solver(
        solve=lambda question: question.first_that_fits([question.everything]),
        floor=lambda question: question.peak_bytes(question.everything),
    ),
    "checkmate": Solver(
        solve=answer_checkmate,
        floor=lambda question: smallest_feasible(question.without_paging()),
        stand_in=lambda question: answer_hurriedly(question.without_paging()),
    ),
    "poet": Solver(solve=answer_poet, floor=smallest_feasible, stand_in=answer_hurriedly),
    "sqrt-n": Solver(
        solve=lambda question: answer_sqrt_n(question.without_paging()),
        floor=lambda question: sqrt_n_floor(question.without_paging()),
    ),
    "swap-all": Solver(solve=answer_swap_all, floor=swap_all_floor),
    "capuchin": Solver(solve=answer_capuchin, floor=capuchin_floor),
}
