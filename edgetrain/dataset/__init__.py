"""Data in, batches out: readers for the formats people have, and batches that resume bit for bit.

One file for each format. What a label means to a loss belongs to `run/loop`; nothing here knows a model.
"""

from edgetrain.dataset.batches import BatchStream, Position, check_labels, evaluation_batches
from edgetrain.dataset.convert import Conversion, check_sample
from edgetrain.dataset.load import load_dataset
from edgetrain.dataset.samples import Dataset, NamedSamples, Part, Samples, from_arrays, from_batches

__all__ = [
    "BatchStream",
    "Conversion",
    "Dataset",
    "NamedSamples",
    "Part",
    "Position",
    "Samples",
    "check_labels",
    "check_sample",
    "evaluation_batches",
    "from_arrays",
    "from_batches",
    "load_dataset",
]
