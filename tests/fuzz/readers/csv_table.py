"""A CSV file, read as a table and as a list of recordings, with each way to fill empty cells."""

from __future__ import annotations

from edgetrain.dataset.load import load_dataset
from edgetrain.dataset.series import read_series
from edgetrain.recipes import MISSING, DataSection, SeriesSection
from tests.fuzz.harness import documented, file_of

WORDS = (
    b"label",
    b"series,group,label",
    b"1,5;",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"1e999",
    b"nan",
    b'"',
    b"1_0",
    b"\r",
    b"\x00",
    b"|",
)


def one_input(data: bytes) -> None:
    with file_of(data, "table.csv") as path:
        for missing in MISSING:
            with documented():
                dataset = load_dataset(DataSection(source=str(path), missing=missing), values=missing == "mean")
                _ = dataset.train.features[0]
        with documented():
            read_series(path, SeriesSection(window=2, hop=1))
