"""The error messages where no plan fits the memory, or none keeps the limits on a step."""

from __future__ import annotations

from edgetrain.errors import PlanInfeasibleError
from edgetrain.graph.ir import TrainGraph
from edgetrain.planner.explain import Explanation, explain
from edgetrain.planner.plan import Plan
from edgetrain.units import Bytes, show_bytes, show_bytes_up, show_joules, show_seconds


def does_not_fit(graph: TrainGraph, memory_bytes: Bytes, smallest: Plan) -> PlanInfeasibleError:
    """The error for a budget below the `smallest` plan's, which says who holds what there."""
    assert smallest.budget.memory_bytes is not None
    least = show_bytes_up(smallest.budget.memory_bytes)
    asked = show_bytes(memory_bytes)
    if asked == least:  # rounded to the same digits: only the bytes tell them apart
        asked, least = f"{memory_bytes}B", f"{smallest.budget.memory_bytes}B"
    why = _who_holds_what(explain(graph, smallest))
    if smallest.beside_bytes:
        why += f"; the program needs {show_bytes(smallest.beside_bytes)} beside that: code, stacks, buffers"
    if smallest.stored:
        why += f"; {len(smallest.stored)} parameters and states are in storage between their uses already"
    error = PlanInfeasibleError(
        f"no plan fits {asked}; the least possible is {least}",
        why=why,
        fix=f"give it more memory with `--budget {least}`, lower train.batch, "
        "or train fewer tensors with `update.mode=head`",
    )
    error.smallest_bytes = smallest.budget.memory_bytes
    return error


def _who_holds_what(explanation: Explanation) -> str:
    held = sorted(explanation.bytes_by_label.items(), key=lambda item: -item[1])
    parts = ", ".join(f"{label} {show_bytes(size)}" for label, size in held if size)
    biggest = ", ".join(f"{explanation.name_of(n)} {show_bytes(size)}" for n, size in explanation.biggest.items())
    source = f" ({explanation.peak_source})" if explanation.peak_source else ""
    text = f"at op `{explanation.peak_op}`{source} of `{explanation.peak_function}` memory holds {parts}"
    return f"{text}; largest temporaries there: {biggest}" if biggest else text


def broken_limits(plan: Plan) -> list[str]:
    """A sentence for each limit of a step that the plan breaks."""
    budget = plan.budget
    problems: list[str] = []
    if budget.deadline_s is not None and plan.seconds > budget.deadline_s:
        limit = show_seconds(budget.deadline_s)
        problems.append(f"one step takes {show_seconds(plan.seconds)}, the deadline is {limit}")
    if budget.energy_j is not None and plan.joules > budget.energy_j:
        problems.append(f"one step takes {show_joules(plan.joules)}, the budget is {show_joules(budget.energy_j)}")
    if budget.written_bytes is not None and plan.written_bytes > budget.written_bytes:
        written, limit = show_bytes_up(plan.written_bytes), show_bytes(budget.written_bytes)
        problems.append(f"one step writes {written} to storage, the limit is {limit}")
    return problems


def check_limits(plan: Plan) -> None:
    """Raises `PlanInfeasibleError` for a plan that breaks a limit of its budget on a step."""
    problems = broken_limits(plan)
    if not problems:
        return
    why = "these are modelled costs of the best plan found"
    if plan.keep_all_seconds is not None and plan.seconds > plan.keep_all_seconds:
        kept = show_bytes_up(plan.keep_all_bytes or 0)
        why += f"; with {kept} nothing is recomputed and a step takes {show_seconds(plan.keep_all_seconds)}"
    raise PlanInfeasibleError(
        "; ".join(problems),
        why=why,
        fix="raise the limit, give it more memory, lower train.batch, or set `update.mode=head`",
    )
