"""A `.npy` file with a pickled object, as the seglearn package brings one."""

from __future__ import annotations

from edgetrain.dataset.object_array import read_object_array
from edgetrain.dataset.series import read_series
from edgetrain.recipes import SeriesSection
from tests.fuzz.harness import documented, file_of

WORDS = (
    *(b"cnumpy\nndarray\n", b"cnumpy\ndtype\n", b"cnumpy._core.multiarray\n_reconstruct\n", b"c_codecs\nencode\n"),
    *(
        b"latin1",
        b"\x8c\x02f8",
        b"\x8c\x02O8",
        b"\x89\x88\x87R",
        b"t\x94b.",
        b"K\x00\x85",
        b"'descr': '|O'",
        b"'shape': ()",
    ),
)


def one_input(data: bytes) -> None:
    with file_of(data, "objects.npy") as path:
        with documented():
            read_object_array(path)
        with documented():
            read_series(path, SeriesSection(window=2, hop=1))
