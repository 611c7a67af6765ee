"""A Parquet file."""

from __future__ import annotations

from edgetrain.dataset.load import load_dataset
from edgetrain.recipes import DataSection
from tests.fuzz.harness import documented, file_of

WORDS = (b"PAR1", b"label", b"ARROW:schema", b"schema")


def one_input(data: bytes) -> None:
    with documented(), file_of(data, "table.parquet") as path:
        dataset = load_dataset(DataSection(source=str(path), missing="mean"))
        _ = dataset.train.features[0]
