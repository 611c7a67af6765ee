"""The exact planner for real graphs: recomputing and paging chosen together, by the windowed program.

Weights and state are part of every budget already; here are the temporaries and what is stored, with scratch, page
alignment and the updates in place, after which nothing that reads the old value may run again (the timeline has no slot
for it).
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace

from edgetrain.planner.plan import Step
from edgetrain.planner.solvers.answer import NO_ANSWER, Answer
from edgetrain.planner.solvers.greedy import quick_answers
from edgetrain.planner.solvers.question import Question
from edgetrain.planner.solvers.search import Price, SearchOptions, search
from edgetrain.planner.solvers.windowed_model import Aim

log = logging.getLogger(__name__)

# The share of a DMA lane's transfer time that is believed to delay the ops. The replay says what it really is; this
# only keeps the program from paging as if all of it were hidden.
_STALL_SHARE = 0.3
# Of the time, and at least, for the quick plans that the search begins with: it is then no worse than `greedy`.
_QUICK_SHARE = 0.3
_LEAST_QUICK_S = 5.0


def answer_milp(question: Question, *, search_options: SearchOptions | None = None) -> Answer:
    """Keep-all if it fits, else the cheapest plan found inside the limit in the time allowed, with its bound."""
    price = _price(question)
    kept = None if question.stored else price(question.everything)
    if kept is not None:
        return Answer(steps=question.everything, cost=kept, bound=kept)
    if question.limit_bytes is None:  # keep-all is the cheapest there is, and breaks a deadline or an energy budget
        return replace(NO_ANSWER, is_infeasible=True)
    options = search_options or _search_options(question)
    quick_s = float("inf") if options.nodes is not None else max(_LEAST_QUICK_S, _QUICK_SHARE * options.time_limit_s)
    answer = search(
        question.problem,
        _aim(question, question.limit_bytes),
        price,
        known=quick_answers(question, question.limit_bytes, until_s=time.monotonic() + quick_s),
        options=options,
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

    options = question.options
    return SearchOptions(
        time_limit_s=options.time_limit_s, nodes=options.nodes, mip_solver=options.mip_solver, told=told
    )


def _aim(question: Question, limit_bytes: int) -> Aim:
    options, weights, storage = question.options, question.weights, question.storage
    overlaps = storage is None or storage.overlaps
    stalls = storage is not None and overlaps and weights.per_second > 0
    return Aim(
        limit_bytes=limit_bytes,
        seconds_weight=weights.per_second,
        joules_weight=weights.per_joule,
        lanes="dma" if overlaps else "synchronous",
        stall_share=_STALL_SHARE if stalls else 0.0,
        deadline_s=options.deadline_s,
        energy_j=options.energy_j,
        written_bytes=options.written_bytes,
    )


def _price(question: Question) -> Price:
    limit_bytes = question.limit_bytes

    def price(steps: tuple[Step, ...]) -> float | None:
        found = question.replayed(steps)
        if limit_bytes is not None and found.temporary_peak_bytes > limit_bytes:
            return None
        return question.cost_of(found) if question.holds(found) else None

    return price
