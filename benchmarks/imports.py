"""Measures the seconds to import and to differentiate MiniLM, at its own depth and deeper.

    python -m benchmarks.imports [--json FILE] [--rounds N] [--depths 3,6,12,24]

The time must not grow faster than the graph. The model has MiniLM-L6's sizes and random weights, so nothing needs to be
installed; depth 6 is MiniLM-L6. Seconds are processor time of one process, so other work on the machine matters little.
TVM is loaded before the clock starts. Depths take turns, and each row has the median of the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import show_table, write_json
from edgetrain.graph.build import build_step
from edgetrain.graph.options import TrainOptions
from edgetrain.model.importer import import_model
from edgetrain.model.zoo_minilm import HEADS, build_minilm

WIDTH, INNER, WORDS, POSITIONS = 384, 1536, 30522, 512
_BATCH, _TOKENS = 8, 128
_DEPTHS = "3,6,12,24"
_PARTS = ("import_seconds", "autodiff_seconds")

_DENSE: Mapping[str, tuple[int, int]] = {
    "attention.self.query": (WIDTH, WIDTH),
    "attention.self.key": (WIDTH, WIDTH),
    "attention.self.value": (WIDTH, WIDTH),
    "attention.output.dense": (WIDTH, WIDTH),
    "intermediate.dense": (INNER, WIDTH),
    "output.dense": (WIDTH, INNER),
}
_NORMS = ("attention.output.LayerNorm", "output.LayerNorm")


def random_state(depth: int) -> dict[str, np.ndarray[Any, Any]]:
    """Tensors of MiniLM's sizes under BertModel's names."""
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (WORDS, WIDTH),
        "embeddings.position_embeddings.weight": (POSITIONS, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        "embeddings.LayerNorm.weight": (WIDTH,),
        "embeddings.LayerNorm.bias": (WIDTH,),
    }
    for layer in (f"encoder.layer.{i}" for i in range(depth)):
        for name, shape in _DENSE.items():
            shapes |= {f"{layer}.{name}.weight": shape, f"{layer}.{name}.bias": shape[:1]}
        shapes |= {f"{layer}.{name}.{key}": (WIDTH,) for name in _NORMS for key in ("weight", "bias")}
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape, np.float32) * np.float32(0.02) for name, shape in shapes.items()}


def measure_once(proto: Any) -> dict[str, float]:
    shapes = dict.fromkeys(("input_ids", "attention_mask"), (_BATCH, _TOKENS))
    started = time.process_time()
    model = import_model(proto, name="minilm", batch=_BATCH, shapes=shapes)
    imported = time.process_time()
    build_step(model, TrainOptions(batch=_BATCH))
    return {"import_seconds": imported - started, "autodiff_seconds": time.process_time() - imported}


def measure(depths: Sequence[int], rounds: int) -> list[dict[str, object]]:
    protos = {depth: build_minilm(random_state(depth), heads=HEADS) for depth in depths}
    measure_once(protos[min(depths)])  # what is loaded and registered on first use
    found: dict[int, list[dict[str, float]]] = {depth: [] for depth in depths}
    for _ in range(rounds):
        for depth in depths:
            found[depth].append(measure_once(protos[depth]))
    return [_row(depth, len(protos[depth].graph.node), found[depth]) for depth in depths]


def _row(depth: int, nodes: int, samples: Sequence[Mapping[str, float]]) -> dict[str, object]:
    totals = [sum(sample.values()) for sample in samples]
    total = statistics.median(totals)
    return {
        "depth": depth,
        "nodes": nodes,
        **{part: statistics.median(sample[part] for sample in samples) for part in _PARTS},
        "total_seconds": total,
        "milliseconds_per_node": 1000 * total / nodes,
        "spread": (max(totals) - min(totals)) / total,
        "n": len(samples),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--depths", default=_DEPTHS, help="layers, comma-separated")
    options = parser.parse_args(arguments)
    rows = measure([int(d) for d in options.depths.split(",")], options.rounds)
    show_table(rows, ("depth", "nodes", *_PARTS, "total_seconds", "milliseconds_per_node", "spread", "n"))
    if options.json:
        write_json(options.json, "imports", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
