"""What a model.onnx says of the data it reads: keys of its metadata, here as an object of texts."""

from __future__ import annotations

import json
from random import Random

from edgetrain.files.texts import parse_json
from edgetrain.run.predict.task import Description
from tests.fuzz.harness import Change, documented
from tests.fuzz.mutations import mutate_json


def one_input(data: bytes) -> None:
    try:
        properties = parse_json(data)
    except ValueError:
        return
    if isinstance(properties, dict) and all(isinstance(value, str) for value in properties.values()):
        with documented():
            Description.from_metadata(properties, where="model.onnx")


def mutate(data: bytes, random: Random, change: Change) -> bytes:
    """The texts are JSON themselves."""
    try:
        properties = json.loads(data)
        key = random.choice(sorted(properties))
        properties[key] = mutate_json(properties[key].encode(), random, change).decode("utf-8", "replace")
        return json.dumps(properties).encode()
    except (ValueError, AttributeError, TypeError, IndexError):
        return change(data)
