from __future__ import annotations

import json

from edgetrain.graph.options import LoraOptions, LossOptions, SparseOptions, TrainOptions


def test_options_survive_json() -> None:
    options = TrainOptions(
        batch=3,
        loss_options=LossOptions(temperature=2.0, class_weights=(1.0, 0.5), has_label_rows=True),
        update_mode="lora",
        lora=LoraOptions(rank=2, targets=("a", "b")),
        sparse=SparseOptions(budget_bytes=9, scores={"w": 0.5}, row_scores={"w": (0.25, 0.25)}),
    )
    assert TrainOptions.from_json(json.loads(json.dumps(options.to_json()))) == options
