"""Whether what a file unpacks to has room in memory: a small file may unpack to more than the machine has."""

from __future__ import annotations

from pathlib import Path

from edgetrain.errors import DataError
from edgetrain.free_memory import read_memory
from edgetrain.units import Bytes, show_bytes

_SHARE = 2  # of what is free, one part for the data; batches, the arena and the compiler need the rest
_USUAL_RATIO = 100  # data that is measured or drawn packs to a tenth at best; deflate packs zeros to a thousandth
_MOST_BEYOND = Bytes(1 << 30)  # what a file may unpack to that packs better than that


def require_room(
    path: Path, *, unpacked_bytes: int, packed_bytes: int, fix: str, usual_ratio: int = _USUAL_RATIO
) -> None:
    """Raises `DataError` where the data would take most of the memory that is free, before any of it is unpacked.

    So it does for more than 1 GiB in a file that packs to less than 1 / `usual_ratio`.
    """
    memory = read_memory()
    limits = [] if memory is None else [(memory.available_bytes // _SHARE, "half of the memory that is free")]
    if unpacked_bytes > usual_ratio * packed_bytes:
        limits.append((_MOST_BEYOND, f"the most for data that packs to less than 1/{usual_ratio} of its size"))
    for most, what in limits:
        if unpacked_bytes > most:
            raise DataError(
                f"{path} is refused: {show_bytes(packed_bytes)} in it unpack to {show_bytes(unpacked_bytes)}",
                why=f"it would be read whole; {what} is {show_bytes(most)}",
                fix=fix,
            )
