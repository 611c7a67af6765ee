"""The nested ranges of the arena."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from edgetrain.errors import InternalError
from edgetrain.graph.persistent import layout_persistent
from edgetrain.program.layout import ArenaLayout, arena_layout, file_offsets
from tests.edgetrain.program.tiny_program import (
    ARENA_BYTES,
    PERSISTENT,
    PERSISTENT_BYTES,
    keep,
    storing_plan,
    tiny_graph,
    tiny_plan,
)


def test_the_ranges_end_where_their_last_tensor_does() -> None:
    assert arena_layout(tiny_graph(), tiny_plan(keep())) == ArenaLayout(
        saved_bytes=6016 + 6000, shipped_bytes=12036, persistent_bytes=PERSISTENT_BYTES, arena_bytes=ARENA_BYTES
    )


def test_a_plan_may_round_the_saved_range_up() -> None:
    plan = replace(tiny_plan(keep()), saved_bytes=12032)
    assert arena_layout(tiny_graph(), plan).saved_bytes == 12032


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"momentum": 5996}, "overlaps `w`"),
        ({"w": -64}, "overlaps the arena's start"),
        ({"loss": PERSISTENT_BYTES}, "persistent tensors end at"),
        ({"x": 0, "w": 6016, "momentum": 12096, "rate": 18096}, "`x` at 0 stands before the end"),
        ({"rate": 0, "w": 64, "momentum": 6080}, "`rate` at 0 stands before the end"),
    ],
)
def test_offsets_that_break_the_order_are_rejected(change: Mapping[str, int], message: str) -> None:
    plan = replace(tiny_plan(keep()), persistent_offsets={**PERSISTENT, **change})
    with pytest.raises(InternalError, match=message):
        arena_layout(tiny_graph(), plan)


def test_a_tensor_without_an_offset_is_rejected() -> None:
    offsets = {name: offset for name, offset in PERSISTENT.items() if name != "x"}
    with pytest.raises(InternalError, match="no offset to `x`"):
        arena_layout(tiny_graph(), replace(tiny_plan(keep()), persistent_offsets=offsets))


def test_a_persistent_part_larger_than_the_arena_is_rejected() -> None:
    with pytest.raises(InternalError, match="the arena at"):
        arena_layout(tiny_graph(), replace(tiny_plan(keep()), peak_bytes=PERSISTENT_BYTES - 1))


def test_files_have_the_same_layout_whatever_is_stored() -> None:
    plan = storing_plan()
    layout, kept = arena_layout(tiny_graph(), plan), layout_persistent(tiny_graph())
    assert file_offsets(tiny_graph(), plan) == kept.offsets
    assert layout.saved_bytes == kept.saved_bytes
    assert layout.persistent_bytes < layout.saved_bytes
