"""Claims about what a sparse update chooses."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.models import small_networks as models
from edgetrain.errors import UsageError
from edgetrain.graph.adapted import adapt
from edgetrain.graph.adapters import RowDelta
from edgetrain.graph.options import OptimizerOptions, SparseOptions, TrainOptions
from edgetrain.graph.sparse import best_rows, update_bytes
from edgetrain.graph.trainable import select_trainable
from edgetrain.model.importer import import_model

BATCH = 2
MLP = import_model(models.mlp(), name="mlp", batch=BATCH)


def chosen(sparse: SparseOptions) -> set[str]:
    return set(select_trainable(MLP, TrainOptions(batch=BATCH, update_mode="sparse", sparse=sparse)))


@settings(deadline=None)
@given(scores=st.fixed_dictionaries({n: st.floats(0.1, 100.0) for n in MLP.parameters}), budget=st.integers(100, 6000))
def test_sparse_stays_within_its_budget_and_wastes_no_room(scores: dict[str, float], budget: int) -> None:
    options = TrainOptions(batch=BATCH, update_mode="sparse", sparse=SparseOptions(budget_bytes=budget, scores=scores))
    names = set(select_trainable(MLP, options))
    costs = update_bytes(MLP, list(MLP.parameters), options)
    spent = sum(costs[n] for n in names)
    assert spent <= budget
    assert all(spent + costs[n] > budget for n in MLP.parameters if n not in names)


def test_a_weight_costs_its_gradient_its_state_and_its_input_and_a_bias_no_input() -> None:
    adam = TrainOptions(batch=BATCH, optimizer=OptimizerOptions(kind="adam"))
    assert update_bytes(MLP, ["second.weight", "second.bias"], adam) == {
        "second.weight": 3 * 4 * (17 * 11) + 4 * BATCH * 17,
        "second.bias": 3 * 4 * 11,
    }


def test_sparse_trains_the_tensors_that_matter() -> None:
    scores = dict.fromkeys(MLP.parameters, 0.0) | {"second.weight": 2.0, "first.bias": 1.0}
    assert chosen(SparseOptions(budget_bytes=10**6, scores=scores)) == {"second.weight", "first.bias"}


@pytest.mark.parametrize(
    ("sparse", "words"),
    [
        (SparseOptions(budget_bytes=1000, scores=None), "contribution analysis"),
        (SparseOptions(budget_bytes=0, scores={"first.bias": 1.0}), r"update\.budget"),
        (SparseOptions(budget_bytes=8, scores={"first.bias": 1.0}), "too little"),
        (SparseOptions(budget_bytes=1000, scores={}), "too little"),
    ],
    ids=["no-scores", "no-budget", "small-budget", "no-value"],
)
def test_sparse_that_cannot_choose_says_what_it_needs(sparse: SparseOptions, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        chosen(sparse)


def test_a_part_of_a_weights_outputs_is_trained_where_the_whole_is_too_dear() -> None:
    row_scores = {"second.weight": (*[0.0] * 7, 5.0, *[0.0] * 3)}  # its eighth output is all that matters
    names = list(MLP.parameters)
    whole = update_bytes(MLP, names, TrainOptions(batch=BATCH))["second.weight"]
    scores = dict.fromkeys(names, 0.0) | {"second.weight": 5.0}
    options = TrainOptions(
        batch=BATCH,
        update_mode="sparse",
        sparse=SparseOptions(budget_bytes=whole - 1, scores=scores, row_scores=row_scores),
    )
    adapted = adapt(MLP, options)
    assert adapted.trained == ("sparse.rows:second.weight",)
    assert adapted.adapters == (RowDelta(weight="second.weight", rows=(7,), axis=0),)
    assert adapted.model.parameters["sparse.rows:second.weight"].shape == (1, 17)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=7), st.data())
def test_no_other_outputs_are_worth_more(scores: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(scores)))
    best = best_rows(scores, count)
    assert best == tuple(sorted(set(best)))
    assert sum(scores[row] for row in best) == max(map(sum, combinations(scores, count)))


def test_a_weight_is_trained_whole_where_that_is_worth_more_and_fits() -> None:
    row_scores = {"second.weight": (1.0,) * 11}
    options = TrainOptions(
        batch=BATCH,
        update_mode="sparse",
        sparse=SparseOptions(budget_bytes=10**6, scores={"second.weight": 11.0}, row_scores=row_scores),
    )
    adapted = adapt(MLP, options)
    assert (adapted.trained, adapted.adapters) == (("second.weight",), ())
