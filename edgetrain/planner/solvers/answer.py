"""What a solver returns: a plan with its cost, and what is proven about cheaper ones."""

from __future__ import annotations

from dataclasses import dataclass

from edgetrain.planner.plan import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The best plan found, if any, with its replayed cost in the unit that was minimised.

    `bound` is proven for all plans that recompute only inside the windows of the timeline; None where nothing is
    proven. `is_infeasible` says that more than the windows was tried: an op alone does not fit, or the program has no
    solution even where every op may run in every stage.
    """

    steps: tuple[Step, ...] | None
    cost: float | None = None
    bound: float | None = None
    is_infeasible: bool = False

    @property
    def gap(self) -> float | None:
        """How much cheaper a plan could be at most, as a share of this one's cost."""
        return gap_of(self.cost, self.bound)


def gap_of(cost: float | None, bound: float | None) -> float | None:
    """How far a cost is above a proven bound, as a share of the cost; None where one of them is not known."""
    if cost is None or bound is None:
        return None
    return max(0.0, cost - bound) / cost if cost else 0.0


NO_ANSWER = Answer(steps=None)
