from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from edgetrain.errors import PlanInfeasibleError, UnsupportedError, WayOut
from edgetrain.graph.ir import Phase, Role, TrainGraph
from edgetrain.planner.make_plan import CostsByFunction, make_plan, smallest_plan, try_plan
from edgetrain.planner.plan import Budget
from edgetrain.planner.ways_out import Variant, find_ways_out
from edgetrain.units import Bytes, parse_bytes
from tests.edgetrain.planner.training_graphs import graph_of, op, tensor, unit_costs

ASKED = Variant(batch=12, accumulate=1, update_mode="full")
_LAYERS_OF_MODE = {"full": 6, "lora": 5, "bias": 4, "head": 1}
GB = 10**9


def step(variant: Variant) -> tuple[TrainGraph, CostsByFunction]:
    """Layers whose activations grow with the batch; summed gradients are state; a sparser mode trains fewer layers."""
    layers, trained = 6, _LAYERS_OF_MODE[variant.update_mode]
    nbytes = 1024 * variant.batch
    tensors = [tensor("x", nbytes, Role.INPUT), tensor("loss", 64, Role.OUTPUT)]
    ops = []
    for i in range(layers):
        tensors += [tensor(f"w{i}", 256, Role.PARAMETER), tensor(f"a{i}", nbytes), tensor(f"g{i}", nbytes)]
        ops.append(op(f"f{i}", (f"a{i - 1}" if i else "x", f"w{i}"), (f"a{i}",)))
    ops.append(op("loss", (f"a{layers - 1}",), ("loss", f"g{layers - 1}"), Phase.LOSS))
    for i in reversed(range(layers - trained, layers)):
        source = f"a{i - 1}" if i else "x"
        tensors.append(tensor(f"m{i}", 2048, Role.STATE))
        if variant.accumulate > 1:
            tensors.append(tensor(f"sum{i}", 256, Role.STATE))
        target = f"sum{i}" if variant.accumulate > 1 else f"w{i}"
        if i > layers - trained:
            ops.append(op(f"b{i}", (f"g{i}", f"w{i}", source), (f"g{i - 1}",), Phase.BACKWARD))
        ops.append(op(f"u{i}", (f"g{i}", source, target, f"m{i}"), (target, f"m{i}"), Phase.UPDATE))
    unused = {f"g{i}" for i in range(layers - trained)}
    graph = graph_of([t for t in tensors if t.name not in unused], ops)
    return graph, {"step": unit_costs(graph)}


def fits(variant: Variant, memory_bytes: int) -> bool:
    graph, costs = step(variant)
    return try_plan(graph, Budget(memory_bytes=Bytes(memory_bytes)), costs) is not None


def ways(memory_bytes: int, *, asked: Variant = ASKED, device_bytes: int = GB) -> tuple[WayOut, ...]:
    graph, costs = step(asked)
    budget = Budget(memory_bytes=Bytes(memory_bytes))
    with pytest.raises(PlanInfeasibleError) as caught:
        make_plan(graph, budget, costs)
    assert caught.value.smallest_bytes is not None
    return find_ways_out(
        asked, budget, caught.value.smallest_bytes, step, device="board", device_bytes=device_bytes, clock=lambda: 0.0
    )


def test_the_bigger_budget_is_one_that_works_and_can_be_copied() -> None:
    budget, _, _ = ways(20_000)
    assert budget.memory_bytes is not None
    assert budget.flags.startswith("--budget ")
    assert fits(ASKED, parse_bytes(budget.flags.removeprefix("--budget ")))
    assert not fits(ASKED, budget.memory_bytes * 9 // 10)
    assert f"({budget.memory_bytes} bytes)" in budget.text


@pytest.mark.parametrize("memory_bytes", [21_500, 25_000, 31_000, 39_000, 42_000, 60_000])
def test_the_smaller_batch_is_the_largest_divisor_that_fits(memory_bytes: int) -> None:
    _, batch, _ = ways(memory_bytes)
    halved = [Variant(batch=n, accumulate=12 // n, update_mode="full") for n in (1, 2, 3, 4, 6)]
    expected = [variant for variant in halved if fits(variant, memory_bytes)][-1]
    assert batch.flags == f"train.batch={expected.batch} train.accumulate={expected.accumulate}"


@pytest.mark.parametrize("batch", [13, 31, 37])
@pytest.mark.parametrize("memory_bytes", [25_000, 39_000, 60_000])
def test_a_batch_without_useful_divisors_becomes_the_largest_power_of_two_that_fits(
    batch: int, memory_bytes: int
) -> None:
    asked = Variant(batch=batch, accumulate=1, update_mode="full")
    _, way, _ = ways(memory_bytes, asked=asked)
    powers = [2**bit for bit in range(8) if 2**bit < batch]
    sums = {size: max(2, round(batch / size)) if size > 1 else batch for size in powers}
    expected = [n for n in powers if fits(replace(asked, batch=n, accumulate=sums[n]), memory_bytes)][-1]
    assert expected > 1
    assert way.flags == f"train.batch={expected} train.accumulate={sums[expected]}"


@pytest.mark.parametrize("memory_bytes", [25_000, 31_000, 42_000, 60_000, 100_000])
def test_with_time_for_three_attempts_the_batch_advised_is_still_the_largest_that_fits(memory_bytes: int) -> None:
    """What a large model has time for: one sample, a guess, and its neighbour."""
    asked, built = Variant(batch=64, accumulate=1, update_mode="full"), 0

    def slow(variant: Variant) -> tuple[TrainGraph, CostsByFunction]:
        nonlocal built
        built += 1
        return step(variant)

    graph, costs = step(asked)
    least = smallest_plan(graph, Budget(), costs).budget.memory_bytes
    assert least is not None
    assert least > memory_bytes
    budget = Budget(memory_bytes=Bytes(memory_bytes))
    _, batch, _ = find_ways_out(
        asked,
        budget,
        least,
        slow,
        device="board",
        device_bytes=GB,
        time_limit_s=6.0,  # half of it for the batch
        clock=lambda: float(built),
    )
    halved = [Variant(batch=n, accumulate=64 // n, update_mode="full") for n in (1, 2, 4, 8, 16, 32)]
    expected = [variant for variant in halved if fits(variant, memory_bytes)][-1]
    assert batch.flags == f"train.batch={expected.batch} train.accumulate={expected.accumulate}"


@pytest.mark.parametrize("memory_bytes", [25_000, 31_000, 42_000, 60_000, 100_000])
def test_where_the_first_attempt_takes_all_the_time_batches_expected_to_fit_are_tried(memory_bytes: int) -> None:
    """What happens to a small model on a busy machine: one sample was advised, because only that had been tried."""
    asked, built = Variant(batch=64, accumulate=1, update_mode="full"), 0

    def slow(variant: Variant) -> tuple[TrainGraph, CostsByFunction]:
        nonlocal built
        built += 1
        return step(variant)

    graph, costs = step(asked)
    least = smallest_plan(graph, Budget(), costs).budget.memory_bytes
    assert least is not None
    _, batch, _ = find_ways_out(
        asked,
        Budget(memory_bytes=Bytes(memory_bytes)),
        least,
        slow,
        device="board",
        device_bytes=GB,
        time_limit_s=1.0,
        clock=lambda: float(built),
    )
    size, count = (int(word.partition("=")[2]) for word in batch.flags.split())
    assert size > 1
    assert size * count == 64
    assert fits(Variant(batch=size, accumulate=count, update_mode="full"), memory_bytes)
    assert built <= 3


def test_where_there_was_no_time_to_try_all_batches_the_line_says_so() -> None:
    graph, costs = step(replace(ASKED, batch=1))
    least = smallest_plan(graph, Budget(), costs).budget.memory_bytes
    assert least is not None
    built = 0

    def slow(variant: Variant) -> tuple[TrainGraph, CostsByFunction]:
        nonlocal built
        built += 1
        return step(variant)

    _, batch, _ = find_ways_out(
        ASKED,
        Budget(memory_bytes=Bytes(least)),
        10 * least,
        slow,
        device="board",
        device_bytes=GB,
        time_limit_s=1.0,
        clock=lambda: float(built),
    )
    assert batch.flags == "train.batch=1"
    assert batch.text.endswith("; there was no time to try all")


def test_a_batch_that_already_accumulates_sums_up_to_as_many_samples_as_before() -> None:
    _, batch, _ = ways(25_000, asked=Variant(batch=12, accumulate=3, update_mode="full"))
    n, m = (int(word.partition("=")[2]) for word in batch.flags.split())
    assert n * m == 36


def test_where_sums_of_gradients_do_not_fit_the_batch_alone_is_lowered() -> None:
    graph, costs = step(Variant(batch=1, accumulate=1, update_mode="full"))
    least = smallest_plan(graph, Budget(), costs).budget.memory_bytes
    assert least is not None
    assert not fits(Variant(batch=1, accumulate=12, update_mode="full"), least)
    _, batch, _ = ways(least)
    assert batch.flags == "train.batch=1"


def test_where_not_even_one_sample_fits_the_line_says_what_it_needs_and_advises_nothing() -> None:
    _, batch, update = ways(3_000)
    assert batch.flags == update.flags == ""
    assert batch.text.startswith("a smaller batch does not help: one sample at a time needs ")
    assert batch.memory_bytes is not None
    assert batch.memory_bytes > 3_000


@pytest.mark.parametrize("asked", ["full", "lora", "bias"])
def test_the_sparser_update_is_the_one_that_learns_most_of_those_that_fit(asked: str) -> None:
    modes = list(_LAYERS_OF_MODE)
    for mode, denser in itertools.pairwise(reversed(modes[modes.index(asked) :])):
        graph, costs = step(Variant(batch=12, accumulate=1, update_mode=mode))
        least = smallest_plan(graph, Budget(), costs).budget.memory_bytes
        assert least is not None
        if fits(Variant(batch=12, accumulate=1, update_mode=denser), least):
            continue
        _, _, update = ways(least, asked=Variant(batch=12, accumulate=1, update_mode=asked))
        assert (update.flags, update.memory_bytes) == (f"update.mode={mode}", least)


def test_the_sparsest_mode_has_nothing_sparser() -> None:
    _, _, update = ways(20_000, asked=Variant(batch=12, accumulate=1, update_mode="head"))
    assert (update.text, update.flags) == ("a sparser update: `head` is the sparsest", "")


def test_a_mode_that_the_model_does_not_take_is_passed_over() -> None:
    def build(variant: Variant) -> tuple[TrainGraph, CostsByFunction]:
        if variant.update_mode in ("lora", "bias"):
            raise UnsupportedError("no such weights")
        return step(variant)

    budget = Budget(memory_bytes=Bytes(55_000))
    *_, update = find_ways_out(ASKED, budget, 60_000, build, device="board", device_bytes=GB, clock=lambda: 0.0)
    assert update.flags == "update.mode=head"


def test_a_budget_that_the_device_does_not_have_is_not_advised() -> None:
    budget, *_ = ways(20_000, device_bytes=30_000)
    assert budget.flags == ""
    assert "board has 30kB" in budget.text


def test_when_the_time_is_up_nothing_more_is_built() -> None:
    def build(variant: Variant) -> tuple[TrainGraph, CostsByFunction]:
        raise AssertionError("the time was up")

    budget = Budget(memory_bytes=Bytes(20_000))
    found = find_ways_out(
        ASKED, budget, 60_000, build, device="board", device_bytes=GB, time_limit_s=0.0, clock=lambda: 0.0
    )
    assert [way.flags for way in found] == ["--budget 60kB", "", ""]


def test_a_search_for_a_sparser_update_that_is_cut_short_does_not_say_that_none_suffices() -> None:
    budget = Budget(memory_bytes=Bytes(20_000))
    minutes = {"full": 0.0, "lora": 2.0}  # after the first sparser mode, which does not fit, the time is up
    now = 0.0

    def build(variant: Variant) -> tuple[TrainGraph, CostsByFunction]:
        nonlocal now
        now += 60 * minutes[variant.update_mode]
        return step(variant)

    *_, update = find_ways_out(ASKED, budget, 60_000, build, device="board", device_bytes=GB, clock=lambda: now)
    assert update.text == "a sparser update: none was found in the time there was"


def test_it_tells_what_it_tries_and_stops_where_the_least_does_not_fit() -> None:
    built: list[Variant] = []
    told: list[str] = []

    def build(variant: Variant) -> tuple[TrainGraph, CostsByFunction]:
        built.append(variant)
        return step(variant)

    find_ways_out(
        ASKED,
        Budget(memory_bytes=Bytes(3_000)),
        60_000,
        build,
        device="board",
        device_bytes=GB,
        clock=lambda: 0.0,
        progress=lambda stage, done, total: told.append(stage),
    )
    assert [(v.batch, v.update_mode) for v in built] == [(1, "full"), (12, "lora"), (12, "bias"), (12, "head")]
    assert told == [
        "trying train.batch=1",
        "trying update.mode=lora",
        "trying update.mode=bias",
        "trying update.mode=head",
    ]


def test_the_error_ends_each_line_with_what_to_add_and_has_the_same_as_data() -> None:
    found = ways(55_000)
    error = PlanInfeasibleError("nothing fits").with_ways_out(found)
    lines = error.fix.splitlines()[1:]
    assert [line.endswith(f"`{way.flags}`") for line, way in zip(lines, found, strict=True)] == [True] * 3
    data = error.to_json()["ways_out"]
    assert isinstance(data, list)
    assert [way["kind"] for way in data] == ["budget", "batch", "update"]
