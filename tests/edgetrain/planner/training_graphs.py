"""Small training graphs, made from literals and seeds, for the planner's tests."""

from __future__ import annotations

import random

from edgetrain.cost.analytic import OpCost
from edgetrain.graph.ir import Op, Phase, Role, Tensor, TrainGraph, validate
from edgetrain.units import Joules, Seconds

FLOAT_BYTES = 4


def tensor(name: str, nbytes: int, role: Role = Role.TEMPORARY) -> Tensor:
    return Tensor(name=name, shape=(nbytes // FLOAT_BYTES,), dtype="float32", role=role)


def op(
    name: str,
    reads: tuple[str, ...],
    writes: tuple[str, ...],
    phase: Phase = Phase.FORWARD,
    scratch_bytes: tuple[int, ...] = (),
) -> Op:
    return Op(name=name, kernel=f"k_{name}", reads=reads, writes=writes, phase=phase, scratch_bytes=scratch_bytes)


def graph_of(tensors: list[Tensor], ops: list[Op]) -> TrainGraph:
    graph = TrainGraph(name="test", tensors={t.name: t for t in tensors}, functions={"step": tuple(ops)})
    validate(graph)
    return graph


def chain(layers: int, nbytes: int = 1024) -> TrainGraph:
    """`layers` layers of equal size: forward, loss, then for each layer a data gradient and an update in place."""
    tensors = [tensor("x", nbytes, Role.INPUT), tensor("loss", 64, Role.OUTPUT)]
    ops: list[Op] = []
    for i in range(layers):
        tensors += [tensor(f"w{i}", 256, Role.PARAMETER), tensor(f"a{i}", nbytes), tensor(f"g{i}", nbytes)]
        ops.append(op(f"f{i}", ("x" if i == 0 else f"a{i - 1}", f"w{i}"), (f"a{i}",)))
    last = layers - 1
    ops.append(op("loss", (f"a{last}",), ("loss", f"g{last}"), Phase.LOSS))
    for i in reversed(range(layers)):
        source = "x" if i == 0 else f"a{i - 1}"
        if i > 0:
            ops.append(op(f"b{i}", (f"g{i}", f"w{i}", source), (f"g{i - 1}",), Phase.BACKWARD))
        ops.append(op(f"u{i}", (f"g{i}", source, f"w{i}"), (f"w{i}",), Phase.UPDATE))
    return graph_of(tensors, ops)


def random_graph(seed: int, *, forward_ops: int, unit_bytes: int = 64, max_units: int = 8) -> TrainGraph:
    """A training-like DAG: random joins forward, joins backward, updates in place, a running statistic, scratch.

    Now and then an op has two outputs or writes a running statistic, so that it may run only once.
    """
    rng = random.Random(seed)
    tensors = [tensor("x", unit_bytes, Role.INPUT), tensor("loss", 64, Role.OUTPUT)]
    ops: list[Op] = []
    made: list[str] = []

    def new(name: str) -> str:
        tensors.append(tensor(name, unit_bytes * rng.randint(1, max_units)))
        return name

    for i in range(forward_ops):
        sources = tuple(rng.sample(made[-4:], rng.randint(1, min(2, len(made))))) if made else ("x",)
        reads, writes = [*sources], [new(f"a{i}")]
        if rng.random() < 0.6:
            tensors.append(tensor(f"w{i}", 64, Role.PARAMETER))
            reads.append(f"w{i}")
        if rng.random() < 0.2:
            writes.append(new(f"mask{i}"))
        if rng.random() < 0.1:
            tensors.append(tensor(f"s{i}", 64, Role.STATE))
            reads.append(f"s{i}")
            writes.append(f"s{i}")
        scratch = (unit_bytes * rng.randint(1, max_units),) if rng.random() < 0.3 else ()
        ops.append(op(f"f{i}", tuple(reads), tuple(writes), scratch_bytes=scratch))
        made.append(f"a{i}")
    ops.append(op("loss", (made[-1],), ("loss", new("g")), Phase.LOSS))
    gradient = "g"
    for i in reversed(range(forward_ops)):
        forward = ops[i]
        temporaries = [n for n in (*forward.reads, *forward.writes) if n[0] == "a" or n.startswith("mask")]
        reads = [gradient, *rng.sample(temporaries, rng.randint(1, len(temporaries)))]
        if f"w{i}" in forward.reads:
            reads.append(f"w{i}")
        ops.append(op(f"b{i}", tuple(reads), (new(f"g{i}"),), Phase.BACKWARD))
        if f"w{i}" in forward.reads:
            ops.append(op(f"u{i}", (gradient, f"w{i}"), (f"w{i}",), Phase.UPDATE))
        gradient = f"g{i}"
    return graph_of(tensors, ops)


def random_costs(graph: TrainGraph, seed: int, function: str = "step") -> dict[str, OpCost]:
    rng = random.Random(seed)
    return {
        o.name: OpCost(seconds=Seconds(float(rng.randint(1, 9))), joules=Joules(float(rng.randint(1, 9))))
        for o in graph.functions[function]
    }


def unit_costs(graph: TrainGraph, function: str = "step") -> dict[str, OpCost]:
    return {o.name: OpCost(seconds=Seconds(1.0), joules=Joules(1.0)) for o in graph.functions[function]}
