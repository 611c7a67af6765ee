from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.graph.knapsack import Item, best_within


def value_of(items: list[Item], names: tuple[str, ...]) -> float:
    return sum(i.value for i in items if i.name in names)


def cost_of(items: list[Item], names: tuple[str, ...]) -> int:
    return sum(i.cost for i in items if i.name in names)


def brute_force(items: list[Item], limit: int) -> float:
    """The best value of all 2ⁿ choices."""
    choices = (c for size in range(len(items) + 1) for c in combinations(items, size) if one_of_each(c))
    return max(sum(i.value for i in c) for c in choices if sum(i.cost for i in c) <= limit)


def one_of_each(choice: Sequence[Item]) -> bool:
    groups = [i.group for i in choice if i.group]
    return len(groups) == len(set(groups))


item_lists = st.lists(
    st.tuples(
        st.integers(0, 12),
        st.one_of(st.integers(0, 9).map(float), st.floats(0, 1e6)),
        st.sampled_from(["", "g", "h", "i"]),
    ),
    max_size=9,
).map(lambda rows: [Item(name=f"i{n}", cost=c, value=v, group=g) for n, (c, v, g) in enumerate(rows)])


@given(items=item_lists, limit=st.integers(0, 40))
def test_nothing_within_the_limit_is_worth_more(items: list[Item], limit: int) -> None:
    names = best_within(items, limit)
    assert cost_of(items, names) <= limit
    assert one_of_each([i for i in items if i.name in names])
    assert value_of(items, names) == pytest.approx(brute_force(items, limit), rel=1e-9)


@given(items=item_lists, limit=st.integers(0, 40))
def test_names_come_in_the_order_given_and_once(items: list[Item], limit: int) -> None:
    names = best_within(items, limit)
    assert list(names) == [i.name for i in items if i.name in set(names)]


def test_of_equal_values_the_cheaper_choice_is_taken() -> None:
    assert best_within([Item(name="dear", cost=5, value=1.0), Item(name="cheap", cost=2, value=1.0)], 5) == ("cheap",)


def test_what_is_worth_nothing_is_never_taken() -> None:
    assert best_within([Item(name="free", cost=0, value=0.0)], 10) == ()


def test_greedy_by_value_for_cost_would_be_wrong_here() -> None:
    dense = Item(name="dense", cost=6, value=7.0)
    items = [dense, *(Item(name=n, cost=5, value=5.0) for n in "ab")]
    assert best_within(items, 10) == ("a", "b")


@pytest.mark.parametrize("seed", range(2))
def test_a_large_models_tensors_are_chosen_exactly(seed: int) -> None:
    """300 tensors of up to 4 MB: dynamic programming over bytes, in units of the sizes' common divisor."""
    rng = np.random.default_rng(seed)
    unit = 4096
    costs, values = rng.integers(1, 1000, 300) * unit, rng.lognormal(size=300)
    items = [
        Item(name=f"t{i}", cost=int(c), value=float(v)) for i, (c, v) in enumerate(zip(costs, values, strict=True))
    ]
    limit = 20_000 * unit
    best = np.zeros(limit // unit + 1)
    for item in items:
        cost = item.cost // unit
        best[cost:] = np.maximum(best[cost:], best[:-cost] + item.value)
    names = best_within(items, limit)
    assert cost_of(items, names) <= limit
    assert value_of(items, names) == pytest.approx(best[-1], rel=1e-9)


@pytest.mark.parametrize("seed", range(2))
def test_shares_of_a_large_models_tensors_are_chosen_exactly(seed: int) -> None:
    """60 tensors, each whole or in a half, a quarter or an eighth: dynamic programming over bytes, group by group."""
    rng = np.random.default_rng(seed)
    items = [
        Item(name=f"t{t}.{share}", cost=int(size) // share + 3, value=float(worth) / share**0.7, group=f"t{t}")
        for t, (size, worth) in enumerate(zip(rng.integers(8, 400, 60), rng.lognormal(size=60), strict=True))
        for share in (1, 2, 4, 8)
    ]
    limit = 3000
    best = np.zeros(limit + 1)
    for t in range(60):
        options = [best]
        for item in (i for i in items if i.group == f"t{t}"):
            options.append(np.concatenate([np.full(item.cost, -1.0), best[: -item.cost] + item.value]))
        best = np.max(options, axis=0)
    names = best_within(items, limit)
    assert cost_of(items, names) <= limit
    assert value_of(items, names) == pytest.approx(best.max(), rel=1e-9)
