"""Synthetic networks for the planner's benchmark, of any depth, with residuals, random sizes or equal blocks."""

from __future__ import annotations

import random
from collections.abc import Sequence

from edgetrain.graph.ir import Op, Phase, Role, Tensor, TrainGraph, validate


def residual_network(layers: int, seed: int = 0) -> TrainGraph:
    """Forward layers with a residual every other one, backward, an update after each gradient: three ops a layer."""
    rng = random.Random(seed)
    sizes = [64 * rng.randint(200, 4000) for _ in range(layers)]
    flops = [rng.randint(1, 50) * 10**6 for _ in range(layers)]
    return _network(f"residual {layers}", sizes=sizes, flops=flops, residual_every=2)


def repeated_network(blocks: int, seed: int = 0) -> TrainGraph:
    """Equal blocks of six layers with a residual over each, forward and backward, an update after each gradient."""
    rng = random.Random(seed)
    layers = 6 * blocks
    block_sizes = [64 * rng.randint(200, 4000) for _ in range(6)]
    block_flops = [rng.randint(1, 50) * 10**6 for _ in range(6)]
    return _network(
        f"repeated {blocks}",
        sizes=[block_sizes[i % 6] for i in range(layers)],
        flops=[block_flops[i % 6] for i in range(layers)],
        residual_every=6,
    )


def _network(name: str, *, sizes: Sequence[int], flops: Sequence[int], residual_every: int) -> TrainGraph:
    layers = len(sizes)
    tensors = [_tensor("x", 4096, Role.INPUT), _tensor("loss", 64, Role.OUTPUT)]
    forward: list[Op] = []
    backward: list[Op] = []
    for i in range(layers):
        before = f"a{i - 1}" if i else "x"
        residual = (f"a{i - residual_every}",) if i % residual_every == 0 and i >= residual_every else ()
        tensors += [_tensor(f"w{i}", 4096, Role.PARAMETER), _tensor(f"a{i}", sizes[i]), _tensor(f"g{i}", sizes[i])]
        forward.append(_op(f"f{i}", (before, f"w{i}", *residual), (f"a{i}",), Phase.FORWARD, flops[i]))
        if i:
            gradient = _op(f"b{i}", (f"g{i}", f"w{i}", before), (f"g{i - 1}",), Phase.BACKWARD, flops[i])
            backward[:0] = [gradient]
        at = 1 if i else 0
        backward.insert(at, _op(f"u{i}", (f"g{i}", before, f"w{i}"), (f"w{i}",), Phase.UPDATE, flops[i]))
    loss = _op("loss", (f"a{layers - 1}",), ("loss", f"g{layers - 1}"), Phase.LOSS, 10**6)
    ops = (*forward, loss, *backward)
    graph = TrainGraph(name=name, tensors={t.name: t for t in tensors}, functions={"step": ops})
    validate(graph)
    return graph


def _tensor(name: str, nbytes: int, role: Role = Role.TEMPORARY) -> Tensor:
    return Tensor(name=name, shape=(nbytes // 4,), dtype="float32", role=role)


def _op(name: str, reads: tuple[str, ...], writes: tuple[str, ...], phase: Phase, flops: int) -> Op:
    return Op(name=name, kernel=name, reads=reads, writes=writes, phase=phase, flops=flops)
