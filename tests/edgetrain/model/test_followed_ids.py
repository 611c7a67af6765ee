"""Bounds of ids that a model cuts out or computes, against the index expression itself: onnx's evaluator runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from benchmarks.references.optional_torch import INSTALL
from edgetrain.dataset.bounds import first_outside
from edgetrain.frameworks.torch_module import export_module
from edgetrain.model.importer import import_model
from edgetrain.model.load import load_onnx
from edgetrain.model.model import Array
from edgetrain.value_bounds import PartBounds

ROWS, BATCH, COLUMNS = 6, 2, 5
INT64, FLOAT = TensorProto.INT64, TensorProto.FLOAT


class Chain:
    """Nodes from `x` (batch, columns) on, each applied to what the one before gave."""

    def __init__(self, dtype: int) -> None:
        self.dtype = dtype
        self.kind: Any = helper.tensor_dtype_to_np_dtype(dtype)
        self.nodes: list[Any] = []
        self.constants: dict[str, Array] = {"table": np.ones((ROWS, 4), np.float32)}
        self.last, self.width, self.rank = "x", COLUMNS, 2

    def constant(self, value: Any, kind: Any = None) -> str:
        name = f"constant{len(self.constants)}"
        self.constants[name] = np.array(value, self.kind if kind is None else kind)
        return name

    def whole(self, value: Any) -> str:
        return self.constant(value, np.int64)

    def add(self, op: str, *others: str, first: str = "", **attributes: Any) -> None:
        """`first` comes before what there is."""
        inputs = [*([first] if first else []), self.last, *others]
        self.last = f"{op}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [self.last], name=self.last, **attributes))

    def cast(self, dtype: int) -> None:
        self.add("Cast", to=dtype)
        self.kind = helper.tensor_dtype_to_np_dtype(dtype)

    def graph(self, nodes: Sequence[Any], output: str, kind: int) -> Any:
        graph = helper.make_graph(
            list(nodes),
            "chain",
            [helper.make_tensor_value_info("x", self.dtype, [BATCH, COLUMNS])],
            [helper.make_tensor_value_info(output, kind, None)],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def cut(chain: Chain) -> None:
    chain.add("Slice", chain.whole([1]), chain.whole([chain.width]), chain.whole([1]))
    chain.width -= 1


def backwards(chain: Chain) -> None:
    chain.add("Slice", chain.whole([-1]), chain.whole([-1000]), chain.whole([1]), chain.whole([-2]))
    chain.width = (chain.width + 1) // 2


def pick(chain: Chain) -> None:
    places = [chain.width - 1, 0, 0]
    chain.add("Gather", chain.whole(places), axis=1)
    chain.width = len(places)


def split(chain: Chain) -> None:
    second = f"second{len(chain.nodes)}"
    chain.nodes.append(
        helper.make_node("Split", [chain.last, chain.whole([1, chain.width - 1])], [f"first{second}", second], axis=1)
    )
    chain.last, chain.width = second, chain.width - 1


def doubled(chain: Chain) -> None:
    chain.add("Concat", chain.last, axis=1)
    chain.width *= 2


def behind_a_constant(chain: Chain) -> None:
    chain.add("Concat", chain.whole(np.zeros((BATCH, 1))) if chain.kind == np.int64 else zeros(chain), axis=1)
    chain.width += 1


def zeros(chain: Chain) -> str:
    """Computed, since stored floats are learned."""
    return computed(chain, np.zeros((BATCH, 1)))


def computed(chain: Chain, value: Any) -> str:
    if chain.kind == np.int64:
        return chain.constant(value)
    name = f"computed{len(chain.nodes)}"
    chain.nodes.append(helper.make_node("Cast", [chain.whole(value)], [name], to=FLOAT))
    return name


def turned(chain: Chain) -> None:
    chain.add("Transpose", perm=[1, 0])
    chain.add("Add", chain.constant(1))
    chain.add("Transpose", perm=[1, 0])


def tiled(chain: Chain) -> None:
    chain.add("Tile", chain.whole([1, 2]))
    chain.width *= 2


def widened(chain: Chain) -> None:
    chain.add("Unsqueeze", chain.whole([1]))
    chain.add("Squeeze", chain.whole([1]))


def plus_each(chain: Chain) -> None:
    chain.add("Add", computed(chain, np.arange(chain.width) - 1))


def clipped_below(chain: Chain) -> None:
    chain.add("Clip", chain.constant(-2))


def either(chain: Chain) -> None:
    condition = chain.constant(np.arange(chain.width) % 2 == 0, np.bool_)
    inputs = [condition, chain.last, computed(chain, np.full((1, chain.width), 3))]
    chain.last = f"Where{len(chain.nodes)}"
    chain.nodes.append(helper.make_node("Where", inputs, [chain.last]))


def only_floats(op: str) -> Callable[[Chain], None]:
    def apply(chain: Chain) -> None:
        if chain.kind == np.float32:
            chain.add(op)

    return apply


def tenth(chain: Chain) -> None:
    if chain.kind == np.float32:
        chain.add("Mul", chain.constant(0.1))


def third(chain: Chain) -> None:
    if chain.kind == np.float32:
        chain.add("Div", chain.constant(3))


STEPS: Mapping[str, Callable[[Chain], None]] = {
    "cut": cut,
    "backwards": backwards,
    "pick": pick,
    "split": split,
    "doubled": doubled,
    "behind a constant": behind_a_constant,
    "turned": turned,
    "tiled": tiled,
    "widened": widened,
    "plus": lambda chain: chain.add("Add", chain.constant(3)),
    "plus each": plus_each,
    "minus": lambda chain: chain.add("Sub", chain.constant(2)),
    "taken from": lambda chain: chain.add("Sub", first=chain.constant(4)),
    "times": lambda chain: chain.add("Mul", chain.constant(3)),
    "times a negative": lambda chain: chain.add("Mul", chain.constant(-2)),
    "negative": lambda chain: chain.add("Neg"),
    "clipped": lambda chain: chain.add("Clip", chain.constant(-3), chain.constant(9)),
    "clipped below": clipped_below,
    "at most": lambda chain: chain.add("Min", chain.constant(4)),
    "at least": lambda chain: chain.add("Max", chain.constant(-1)),
    "either": either,
    "floor": only_floats("Floor"),
    "ceil": only_floats("Ceil"),
    "round": only_floats("Round"),
    "tenth": tenth,
    "third": third,
    "to floats": lambda chain: chain.cast(FLOAT),
    "to whole numbers": lambda chain: chain.cast(INT64),
}


def random_chain(seed: int) -> tuple[Chain, list[str]]:
    rng = np.random.default_rng(seed)
    chain = Chain(FLOAT if seed % 2 else INT64)
    names = [str(name) for name in rng.choice(list(STEPS), rng.integers(1, 7))]
    for name in names:
        if chain.width > 1:
            STEPS[name](chain)
    if chain.kind != np.int64:
        chain.cast(INT64)
    return chain, names


def imported(chain: Chain) -> Any:
    look_up = helper.make_node("Gather", ["table", chain.last], ["out"], name="out")
    return import_model(chain.graph([*chain.nodes, look_up], "out", FLOAT), name="chain", batch=BATCH)


def evaluated(chain: Chain) -> Callable[[Array], Array]:
    if not chain.nodes:
        return lambda x: x
    evaluator = ReferenceEvaluator(chain.graph(chain.nodes, chain.last, INT64))

    def run(x: Array) -> Array:
        result: Any = evaluator.run(None, {"x": x})
        return np.asarray(result[0])

    return run


def samples(bounds: Any, kind: Any, rng: np.random.Generator) -> Array:
    """Values near 0, and the bounds with their neighbours."""
    regions = bounds.regions if isinstance(bounds, PartBounds) else ()
    limits = [x for r in regions for x in (r.lowest, r.highest)] if regions else list(bounds or ())
    near = np.array([x for x in limits if abs(x) < 1e6] or [0], kind)
    beside = [np.nextafter(near, kind(s)) if kind == np.float32 else near + s for s in (-1000, 1000)]
    beside = beside if kind == np.float32 else [near - 1, near + 1]
    pool = np.concatenate([near, near, *beside, rng.integers(-2, 3, 4).astype(kind)])
    wild = rng.uniform(-30, 30, (BATCH, COLUMNS)).astype(kind)
    is_wild = rng.random((BATCH, COLUMNS)) < rng.choice([0, 0.1, 1])
    values: Array = np.where(is_wild, wild, rng.choice(pool, (BATCH, COLUMNS)))
    return values


def places_of_input(run: Callable[[Array], Array], kind: Any, rng: np.random.Generator) -> Array:
    """Which ids come from `x`: those that are not the same whatever it holds."""
    found = [run(rng.uniform(-reach, reach, (BATCH, COLUMNS)).astype(kind)) for reach in (3, 30, 300) * 20]
    return np.asarray(np.any(np.array(found) != found[0], axis=0))


@pytest.mark.parametrize("seed", range(160))
def test_bounds_refuse_exactly_what_ends_outside_of_the_table(seed: int) -> None:
    chain, names = random_chain(seed)
    model = imported(chain)
    (spec,) = model.inputs
    kind = np.dtype(spec.dtype).type
    rng = np.random.default_rng(seed)
    run = evaluated(chain)
    from_input = places_of_input(run, kind, rng)
    if model.warnings:  # an element that is looked up twice, and no value of it is in the table both times
        assert spec.bounds is None
        assert {"doubled", "tiled", "pick"} & set(names)
        return
    for _ in range(60):
        x = samples(spec.bounds, kind, rng)
        places = run(x)
        expected = bool(np.any(((places < -ROWS) | (places >= ROWS)) & from_input))
        found = spec.bounds is not None and first_outside(x, spec.bounds) is not None
        assert found == expected, (names, spec.bounds, x, places)


def test_a_column_that_a_pytorch_module_makes_an_id_of_is_followed(tmp_path: Path) -> None:
    """`x[:, 0].long()` and an offset for each field, as tables of categories are written."""
    torch = pytest.importorskip("torch", reason=INSTALL)

    class Fields(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.years, self.words = torch.nn.Embedding(10, 4), torch.nn.Embedding(8, 2)
            self.register_buffer("offsets", torch.tensor([0, 3]))
            self.last = torch.nn.Linear(9, 2)

        def forward(self, x: Any) -> Any:
            year = self.years(x[:, 0].long() - 1900)
            words = self.words(x[:, 1:3].to(torch.int64) + self.offsets).flatten(1)
            return self.last(torch.cat([year, words, x[:, 3:]], 1))

    sample = np.array([1902, 1, 1, 0.5], np.float32)
    exported = export_module(Fields(), [sample] * 2, tmp_path / "fields.onnx")
    model = import_model(load_onnx(exported.path), name="fields", batch=4)
    bounds = model.inputs[0].bounds
    assert model.warnings == ()
    assert isinstance(bounds, PartBounds)
    assert [(r.start, r.count, round(r.lowest), round(r.highest)) for r in bounds.regions] == [
        (0, 1, 1890, 1910),
        (1, 1, -9, 8),
        (2, 1, -12, 5),
    ]
