"""The exact planner for real graphs: recomputing and paging chosen together, by the windowed program.

Weights and state are part of every budget already; here are the temporaries and what is stored, with scratch, page
alignment and the updates in place, after which nothing that reads the old value may run again (the timeline has no slot
for it).
"""

from __future__ import annotations

import logging
from dataclasses import replace

from edgetrain.plan.schedule import Step
from edgetrain.plan.solvers.answer import NO_ANSWER, Answer
from edgetrain.plan.solvers.greedy import quick_schedules
from edgetrain.plan.solvers.options import SolverOptions
from edgetrain.plan.solvers.problem import Problem, priced_in_joules
from edgetrain.plan.solvers.question import Question
from edgetrain.plan.solvers.search import Price, SearchOptions, search
from edgetrain.plan.solvers.windowed_model import Aim

log = logging.getLogger(__name__)

# The share of a DMA lane's transfer time that is believed to delay the ops. The replay says what it really is; this
# only keeps the program from paging as if all of it were hidden.
_STALL_SHARE = 0.3


def answer_milp(question: Question, *, search_options: SearchOptions | None = None) -> Answer:
    """Keep-all if it fits, else the cheapest schedule found inside the limit in the time allowed, with its bound."""
    price = _price(question)
    kept = None if question.stored else price(question.everything)
    if kept is not None:
        return Answer(steps=question.everything, cost=kept, bound=kept)
    if question.limit_bytes is None:  # keep-all is the cheapest there is, and breaks a deadline or an energy budget
        return replace(NO_ANSWER, is_infeasible=True)
    options, problem = question.options, question.problem
    priced = priced_in_joules(problem) if options.objective == "joules" else problem
    answer = search(
        problem,
        _aim(question.limit_bytes, problem, options),
        price,
        known=quick_schedules(priced, question.limit_bytes),
        options=search_options or _search_options(question),
    )
    if answer.gap is not None:
        log.info("`%s` is at most %.2g %% from the best plan of its window", question.function, 100 * answer.gap)
    return answer


def answer_checkmate(question: Question) -> Answer:
    """`answer_milp` without paging, which is Checkmate's question (Jain et al., arXiv:1910.02653)."""
    return answer_milp(question.without_paging())


def _search_options(question: Question) -> SearchOptions:
    def told(done_s: float, limit_s: float) -> None:
        question.progress(f"planning {question.function}", round(min(done_s, limit_s)), round(limit_s))

    return SearchOptions(time_limit_s=question.options.time_limit_s, nodes=question.options.nodes, told=told)


def _aim(limit_bytes: int, problem: Problem, options: SolverOptions) -> Aim:
    aim = Aim(
        limit_bytes=limit_bytes,
        seconds_weight=1.0 if options.objective == "seconds" else 0.0,
        joules_weight=1.0 if options.objective == "joules" else 0.0,
        lanes="dma",
        deadline_s=options.deadline_s,
        energy_j=options.energy_j,
    )
    return aim if problem.transfers is None or options.objective == "joules" else replace(aim, stall_share=_STALL_SHARE)


def _price(question: Question) -> Price:
    options, limit_bytes = question.options, question.limit_bytes

    def price(steps: tuple[Step, ...]) -> float | None:
        found = question.replayed(steps)
        if limit_bytes is not None and found.temporary_peak_bytes > limit_bytes:
            return None
        if options.deadline_s is not None and found.seconds > options.deadline_s:
            return None
        if options.energy_j is not None and found.joules > options.energy_j:
            return None
        return found.seconds if options.objective == "seconds" else found.joules

    return price
