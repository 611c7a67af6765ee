from __future__ import annotations

from dataclasses import replace

import pytest

from edgetrain.cost.analytic import OpCost
from edgetrain.errors import InternalError
from edgetrain.graph.ir import Phase, Role, TrainGraph
from edgetrain.planner.plan import Compute, Free, PageIn, PageOut, Stay, Step, replay
from edgetrain.targets.device import Storage
from edgetrain.units import Joules, Seconds
from tests.edgetrain.planner.training_graphs import graph_of, op, tensor, unit_costs

# 4096 bytes at these rates: a write takes 4 s, a read 2 s.
STORAGE = Storage(
    read_bytes_per_s=2048.0,
    write_bytes_per_s=1024.0,
    joules_per_byte_read=0.001,
    joules_per_byte_written=0.002,
    latency_s=0.0,
)


def small_graph() -> TrainGraph:
    """x -f-> a -g-> b; back reads a and b and updates w, which f reads too. Sizes differ, so bytes tell them apart."""
    return graph_of(
        [
            tensor("x", 64, Role.INPUT),
            tensor("w", 64, Role.PARAMETER),
            tensor("loss", 64, Role.OUTPUT),
            tensor("a", 4096),
            tensor("b", 128),
            tensor("c", 192),
        ],
        [
            op("f", ("x", "w"), ("a",)),
            op("g", ("a",), ("b",), scratch_bytes=(256, 10)),
            op("h", ("b",), ("c", "loss"), Phase.LOSS),
            op("read_loss", ("loss", "c"), ("w",), Phase.UPDATE),
            op("late", ("a",), (), Phase.UPDATE),
        ],
    )


F, G, H, U, LATE = (Compute(name) for name in ("f", "g", "h", "read_loss", "late"))


def run(*steps: Step, storage: Storage | None = None) -> list[int]:
    graph = small_graph()
    return list(replay(graph, "step", steps, unit_costs(graph), storage).memory_timeline)


def test_the_timeline_counts_temporaries_and_scratch_and_nothing_persistent() -> None:
    scratch = 256 + 64  # the second buffer is aligned
    assert run(F, G, H, Free("b"), U, LATE, Free("a")) == [
        4096,
        4096 + 128 + scratch,
        4096 + 128 + 192,
        4096 + 192,
        4096 + 192,
        4096 + 192,
        192,
    ]


def test_the_peak_is_where_most_is_live() -> None:
    graph = small_graph()
    found = replay(graph, "step", (F, G, H, U, LATE), unit_costs(graph))
    assert (found.temporary_peak_bytes, found.peak_step) == (4096 + 128 + 320, 1)


def test_stays_run_from_the_write_to_the_step_before_the_free() -> None:
    graph = small_graph()
    found = replay(graph, "step", (F, G, Free("a"), H, F, U, LATE), unit_costs(graph))
    assert [stay for stay in found.stays if stay.tensor in ("a", "g#0")] == [
        Stay(tensor="a", start=0, end=1, nbytes=4096, paged=False),
        Stay(tensor="g#0", start=1, end=1, nbytes=256, paged=False),
        Stay(tensor="a", start=4, end=6, nbytes=4096, paged=False),
    ]


def test_a_recomputed_op_is_counted_and_paid() -> None:
    graph = small_graph()
    found = replay(graph, "step", (F, G, Free("a"), H, F, U, LATE), unit_costs(graph))
    assert (found.recomputed, found.seconds, found.joules) == ({"f": 1}, 6.0, 6.0)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ((F, Free("a"), G), "op `g` reads `a`, which is not in memory"),
        ((G,), "step 0 op `g` reads `a`"),
        ((F, Free("b")), "frees `b`, which is not in memory"),
        ((F, Free("a"), Free("a")), "step 2 frees `a`"),
        ((PageOut("a"),), "pages out `a`, which is not in memory"),
        ((F, Free("a"), PageIn("a")), "pages in `a`, which was never paged out"),
        ((F, PageOut("a"), PageIn("a")), "pages in `a`, which is in memory already"),
        ((F, G, H, U), "op `late` never ran"),
        ((F, G, H, H, U, LATE), "op `h`, which writes the persistent `loss`, runs a second time"),
        ((F, G, H, U, Free("a"), F, LATE), "op `f` touches `w` after 1 in-place writes instead of 0"),
        ((F, G, U, H, LATE), "op `read_loss` touches `loss` after 0 in-place writes instead of 1"),
        ((Compute("nothing"),), "unknown op `nothing`"),
    ],
)
def test_an_invalid_plan_is_rejected_with_step_and_tensor(steps: tuple[Step, ...], message: str) -> None:
    with pytest.raises(InternalError) as caught:
        run(*steps, storage=STORAGE)
    assert message in caught.value.what


def test_paging_without_storage_is_rejected() -> None:
    with pytest.raises(InternalError, match="there is no storage"):
        run(F, PageOut("a"))


def test_recomputing_before_the_update_is_accepted_and_an_output_may_be_read_after_its_write() -> None:
    assert run(F, Free("a"), F, G, H, U, LATE)


def test_an_op_with_two_outputs_can_run_again_for_the_one_that_is_missing() -> None:
    graph = graph_of(
        [tensor("x", 64, Role.INPUT), tensor("left", 64), tensor("right", 128)],
        [op("both", ("x",), ("left", "right")), op("end", ("left", "right"), ())],
    )
    steps = (Compute("both"), Free("right"), Compute("both"), Compute("end"))
    found = replay(graph, "step", steps, unit_costs(graph))
    assert found.memory_timeline == (192, 64, 192, 192)
    assert [(stay.tensor, stay.start) for stay in found.stays] == [("left", 0), ("right", 0), ("right", 2)]


def test_a_write_hides_behind_computing_and_free_waits_for_it() -> None:
    graph = small_graph()
    # a is made at 1 s and written until 5 s; g and h compute until 3 s; freeing waits until 5 s.
    steps = (F, PageOut("a"), G, H, Free("a"), PageIn("a"), U, LATE)
    found = replay(graph, "step", steps, unit_costs(graph), STORAGE)
    # The read ends at 7 s, behind u (6 s); late waits for it and ends at 8 s.
    assert found.seconds == 8.0
    assert found.joules == pytest.approx(5 + 4096 * 0.003)
    assert (found.paged_out_bytes, found.paged_in_bytes) == (4096, 4096)


def test_transfers_share_one_lane() -> None:
    graph = small_graph()
    # Both writes are issued at 2 s: a until 6 s, b until 10 s, though only b is waited for.
    found = replay(graph, "step", (F, G, PageOut("a"), PageOut("b"), H, Free("b"), U, LATE), unit_costs(graph), STORAGE)
    assert found.seconds == 12.0


def test_a_plan_ends_when_its_last_transfer_does() -> None:
    graph = small_graph()
    found = replay(graph, "step", (F, G, H, U, LATE, PageOut("a")), unit_costs(graph), STORAGE)
    assert found.seconds == 5.0 + 4.0


def test_every_stay_of_a_paged_tensor_takes_whole_pages() -> None:
    graph = small_graph()
    steps = (F, G, PageOut("b"), Free("b"), PageIn("b"), H, U, LATE)
    found = replay(graph, "step", steps, unit_costs(graph), STORAGE)
    assert [(s.nbytes, s.paged) for s in found.stays if s.tensor == "b"] == [(4096, True), (4096, True)]


def test_costs_are_looked_up_by_op() -> None:
    graph = small_graph()
    costs = unit_costs(graph) | {"g": OpCost(seconds=Seconds(10.0), joules=Joules(20.0))}
    found = replay(graph, "step", (F, G, H, U, LATE), costs)
    assert (found.seconds, found.joules) == (14.0, 24.0)


def test_storage_that_does_not_overlap_makes_every_op_wait() -> None:
    graph = small_graph()
    steps = (F, PageOut("a"), G, Free("a"), H, Free("b"), PageIn("a"), U, LATE)
    beside = replay(graph, "step", steps, unit_costs(graph), STORAGE)
    waiting = replay(graph, "step", steps, unit_costs(graph), replace(STORAGE, overlaps=False))
    assert waiting.seconds == 5.0 + 4.0 + 2.0
    assert beside.seconds < waiting.seconds
    assert (beside.joules, beside.memory_timeline) == (waiting.joules, waiting.memory_timeline)
