"""Data in, batches out: readers for the formats people have, and batches that resume bit for bit."""

from edgetrain.dataset.batches import BatchStream, Position, check_labels, evaluation_batches
from edgetrain.dataset.convert import Conversion, check_convertible
from edgetrain.dataset.load import load_dataset
from edgetrain.dataset.samples import Dataset, Part, Samples, from_arrays, from_batches, from_pairs

__all__ = [
    "BatchStream",
    "Conversion",
    "Dataset",
    "Part",
    "Position",
    "Samples",
    "check_convertible",
    "check_labels",
    "evaluation_batches",
    "from_arrays",
    "from_batches",
    "from_pairs",
    "load_dataset",
]
