from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetrain.graph.ir import Role
from edgetrain.graph.persistent import layout_persistent
from edgetrain.planner.arena import pack, shift
from edgetrain.planner.plan import Compute, Free, PageIn, PageOut, Placement, Stay, Step, replay
from edgetrain.planner.solvers.keep_all import keep_all_steps
from tests.edgetrain.planner.training_graphs import chain, graph_of, op, random_graph, tensor, unit_costs


def overlaps(placements: tuple[Placement, ...]) -> list[tuple[Placement, Placement]]:
    return [
        (p, q)
        for index, p in enumerate(placements)
        for q in placements[index + 1 :]
        if p.start <= q.end and q.start <= p.end and p.offset < q.offset + q.nbytes and q.offset < p.offset + p.nbytes
    ]


@st.composite
def stays_of_anything(draw: st.DrawFn) -> list[Stay]:
    count = draw(st.integers(0, 25))
    stays = []
    for index in range(count):
        start = draw(st.integers(0, 20))
        paged = draw(st.booleans())
        unit = 4096 if paged else 64
        stays.append(
            Stay(
                tensor=f"t{index}",
                start=start,
                end=start + draw(st.integers(0, 10)),
                nbytes=unit * draw(st.integers(0, 5)),
                paged=paged,
            )
        )
    return stays


@given(stays_of_anything())
@settings(max_examples=200, deadline=None)
def test_packed_stays_never_overlap_and_are_aligned(stays: list[Stay]) -> None:
    packing = pack(stays)
    assert [(p.tensor, p.start, p.end, p.nbytes) for p in packing.placements] == [
        (s.tensor, s.start, s.end, s.nbytes) for s in stays
    ]
    assert overlaps(packing.placements) == []
    for stay, placement in zip(stays, packing.placements, strict=True):
        assert placement.offset >= 0
        assert placement.offset % (4096 if stay.paged else 64) == 0


@given(stays_of_anything())
@settings(max_examples=200, deadline=None)
def test_the_arena_ends_at_the_last_byte_and_is_no_smaller_than_the_lower_bound(stays: list[Stay]) -> None:
    packing = pack(stays)
    live = [sum(s.nbytes for s in stays if s.start <= step <= s.end) for step in range(40)]
    assert packing.lower_bound_bytes == max(live)
    assert packing.arena_bytes == max((p.offset + p.nbytes for p in packing.placements), default=0)
    assert packing.arena_bytes >= packing.lower_bound_bytes


def memory_by_walking(steps: tuple[Step, ...], graph_writes: dict[str, tuple[str, ...]]) -> list[set[str]]:
    """What is in memory during each step, derived from the steps alone: no replay, no packer."""
    memory: set[str] = set()
    during: list[set[str]] = []
    for step in steps:
        match step:
            case Compute(name):
                memory = memory | set(graph_writes[name])
            case Free(name):
                memory = memory - {name}
            case PageIn(name):
                memory = memory | {name}
            case PageOut():
                pass
        during.append(memory)
    return during


@pytest.mark.parametrize("seed", range(10))
def test_tensors_that_are_in_memory_together_lie_apart(seed: int) -> None:
    graph = random_graph(seed, forward_ops=25)
    steps = keep_all_steps(graph, "step")
    packing = pack(replay(graph, "step", steps, unit_costs(graph)).stays)
    writes = {o.name: tuple(n for n in o.writes if graph.tensors[n].is_temporary) for o in graph.functions["step"]}
    for index, (step, memory) in enumerate(zip(steps, memory_by_walking(steps, writes), strict=True)):
        here = [p for p in packing.placements if p.start <= index <= p.end]
        scratch = {p.tensor for p in here if "#" in p.tensor}
        expected = (
            {f"{step.op}#{i}" for i in range(len(graph.op("step", step.op).scratch_bytes))}
            if isinstance(step, Compute)
            else set()
        )
        assert {p.tensor for p in here} - scratch == memory
        assert scratch == expected
        in_order = sorted(here, key=lambda p: p.offset)
        assert all(p.offset + p.nbytes <= q.offset for p, q in pairwise(in_order))


def test_a_training_chain_packs_without_fragmentation() -> None:
    graph = chain(40)
    packing = pack(replay(graph, "step", keep_all_steps(graph, "step"), unit_costs(graph)).stays)
    assert packing.arena_bytes == packing.lower_bound_bytes


@pytest.mark.parametrize("seed", range(5))
def test_random_training_graphs_fragment_by_at_most_two_percent(seed: int) -> None:
    graph = random_graph(seed, forward_ops=80)
    packing = pack(replay(graph, "step", keep_all_steps(graph, "step"), unit_costs(graph)).stays)
    assert packing.arena_bytes <= 1.02 * packing.lower_bound_bytes


def test_packing_is_deterministic() -> None:
    rng = random.Random(0)
    stays = [
        Stay(tensor=str(i), start=rng.randint(0, 50), end=60, nbytes=64 * rng.randint(1, 50), paged=False)
        for i in range(100)
    ]
    assert pack(stays) == pack(list(stays))


def test_packing_stops_at_what_is_enough() -> None:
    rng = random.Random(1)
    stays = []
    for i in range(60):
        start = rng.randint(0, 50)
        stays.append(
            Stay(tensor=str(i), start=start, end=start + rng.randint(0, 9), nbytes=64 * rng.randint(1, 50), paged=False)
        )
    generous = pack(stays, enough_bytes=1 << 30)
    assert overlaps(generous.placements) == []
    assert generous.arena_bytes >= pack(stays).arena_bytes


def test_shifting_moves_every_placement() -> None:
    placements = pack([Stay(tensor="t", start=0, end=1, nbytes=64, paged=False)]).placements
    assert [p.offset for p in shift(placements, 128)] == [128]


def test_saved_tensors_are_one_range_at_the_start() -> None:
    graph = graph_of(
        [
            tensor("out", 64, Role.OUTPUT),
            tensor("x", 100, Role.INPUT),
            tensor("state", 64, Role.STATE),
            tensor("constant", 64, Role.CONSTANT),
            tensor("w", 100, Role.PARAMETER),
            tensor("t", 64),
        ],
        [op("f", ("x", "w"), ("t",)), op("g", ("t",), ("out",))],
    )
    layout = layout_persistent(graph)
    assert layout.offsets == {"w": 0, "state": 128, "constant": 192, "x": 256, "out": 384}
    assert (layout.saved_bytes, layout.nbytes) == (192, 448)


def test_a_graph_without_saved_tensors_saves_nothing() -> None:
    graph = graph_of([tensor("x", 64, Role.INPUT), tensor("y", 64, Role.OUTPUT)], [op("f", ("x",), ("y",))])
    assert layout_persistent(graph).saved_bytes == 0
