"""Schedules are values: equal whatever their order, and applied as what they say."""

from __future__ import annotations

from edgetrain_tuner.schedule import Schedule


def test_the_order_of_parameters_makes_no_difference() -> None:
    one = Schedule("r", {"rows": (6,), "shape": (1, 16)})
    other = Schedule("r", {"shape": (1, 16), "rows": (6,)})
    assert one == other
    assert len({one, other}) == 1
    assert one.canonical() == '{"parameters":{"rows":[6],"shape":[1,16]},"rule":"r"}'


def test_another_rule_or_value_is_another_schedule() -> None:
    schedules = {Schedule(rule, {"rows": (rows,)}) for rule in ("r", "s") for rows in (1, 2)}
    assert len(schedules) == 4


def test_it_is_shown_in_one_line() -> None:
    assert str(Schedule("packed-product", {"shape": (1, 16), "rows": (6,)})) == "packed-product shape 1x16 rows 6"
