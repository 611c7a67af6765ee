"""An archive of arrays: the mutation changes one array and packs the archive again, so that check sums fit."""

from __future__ import annotations

import numpy as np

from edgetrain.dataset.load import load_dataset
from edgetrain.dataset.npz import read_npz, read_npz_arrays, read_npz_features
from edgetrain.dataset.series import read_series
from edgetrain.recipes import DataSection, SeriesSection
from tests.fuzz.harness import documented, file_of
from tests.fuzz.mutations import mutate_zip

WORDS = (
    b"'descr': ",
    b"'fortran_order': True",
    b"'shape': (",
    b"'<f8'",
    b"'|O'",
    b"'>i2'",
    b"'|S1'",
    b"\x93NUMPY\x02\x00",
)

mutate = mutate_zip


def one_input(data: bytes) -> None:
    with file_of(data, "data.npz") as path:
        with documented():
            read_npz(path, values=True)
        with documented():
            features = read_npz_features(path)
            _ = features[0] if len(features) else None
        with documented():
            for values in read_npz_arrays(path).values():
                np.asarray(values).tobytes()
        with documented():
            read_series(path, SeriesSection(window=2, hop=1))
        with documented():
            dataset = load_dataset(DataSection(source=str(path), test=0.25))
            _ = dataset.train.features[0]
