"""Our solvers, by the name a user gives to `--solver`.

They may leave parameters and optimizer state in storage, and save memory unasked where that costs little. What they are
compared with is in `planner/references`, and `planner/known_solvers.py` joins both.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgetrain.planner.solvers.greedy import answer_greedy, answer_hurriedly, smallest_feasible
from edgetrain.planner.solvers.milp import answer_milp
from edgetrain.planner.solvers.solver import Solver

OUR_SOLVERS: Mapping[str, Solver] = {
    "greedy": Solver(solve=answer_greedy, floor=smallest_feasible),
    "milp": Solver(solve=answer_milp, floor=smallest_feasible, stand_in=answer_hurriedly),
}
