"""A folder of IDX files, as MNIST has them: images, labels, with `%%%` between them."""

from __future__ import annotations

from edgetrain.dataset.load import load_dataset
from edgetrain.recipes import DataSection
from tests.fuzz.harness import documented, file_of

WORDS = (b"%%%", b"\x00\x00\x08\x03", b"\x00\x00\x08\x01", b"\x00\x00\x0d\x02", b"\x1f\x8b\x08", b"\xff\xff\xff\xff")


def one_input(data: bytes) -> None:
    images, _, labels = data.partition(b"%%%")
    ending = ".gz" if images.startswith(b"\x1f\x8b") else ""
    with documented(), file_of(images, f"train-images-idx3-ubyte{ending}") as path:
        (path.parent / "train-labels-idx1-ubyte").write_bytes(labels)
        dataset = load_dataset(DataSection(source=str(path.parent)))
        _ = dataset.train.features[0]
