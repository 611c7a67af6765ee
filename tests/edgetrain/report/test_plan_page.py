from __future__ import annotations

from edgetrain.planner.explain import explain
from edgetrain.planner.make_plan import make_plan
from edgetrain.planner.plan import NO_PROGRAM, Budget, ProgramMemory
from edgetrain.report.page import to_html
from edgetrain.report.plan_page import plan_page
from edgetrain.units import Bytes, show_bytes
from tests.edgetrain.planner.training_graphs import chain, unit_costs

BUDGET = Budget(memory_bytes=Bytes(2_000_000))
PROGRAM = ProgramMemory(resident_bytes=300_000)


def page_of(beside: ProgramMemory) -> tuple[str, int]:
    """The page, and what the plan needs of the arena."""
    graph = chain(12)
    plan = make_plan(graph, BUDGET, {"step": unit_costs(graph)}, beside=beside)
    return to_html(plan_page(graph, plan, explain(graph, plan), (), text="")), plan.peak_bytes


def test_the_verdict_counts_all_that_the_budget_is_for() -> None:
    page, peak_bytes = page_of(PROGRAM)
    needed = show_bytes(peak_bytes + 300_000)
    assert f"training takes {needed} of 2MB." in page
    assert f"tensors {show_bytes(peak_bytes)}, program 300kB" in page


def test_a_device_that_runs_code_from_flash_has_tensors_alone() -> None:
    page, peak_bytes = page_of(NO_PROGRAM)
    assert f"training takes {show_bytes(peak_bytes)} of 2MB." in page
    assert "program" not in page.partition("<main")[2].partition("</dl>")[0]
