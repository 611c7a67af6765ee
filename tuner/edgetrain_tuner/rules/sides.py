"""Which side of a contraction lies in vectors: the one along which the result is contiguous, or the other one.

As found, vectors run along the result, and B is the image of a convolution: every element is copied once for each tap
of the window. The other way round vectors run over filters. The weights are what is copied then, few of them and used
for all places of the image, and the image is read element by element, at any stride. What that costs is a result that
is stored across its rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgetrain_tuner.rules.contraction import Contraction, unguarded
from edgetrain_tuner.rules.staging import Reach, reach_of

AS_FOUND, TRANSPOSED = 1, 2


@dataclass(frozen=True, kw_only=True)
class Side:
    """A contraction to be computed with vectors along its j; `reach` is set where A must be copied to be read."""

    contraction: Contraction
    reach: Reach | None = None
    is_transposed: bool = False


def sides_of(contraction: Contraction) -> Mapping[int, Side]:
    """The ways there are, by their number in a schedule."""
    sides = {AS_FOUND: Side(contraction=contraction)}
    turned = contraction.transposed()
    reach = reach_of(turned)
    if reach is not None:
        needs_copy = unguarded(turned.a)[0] is not None
        sides[TRANSPOSED] = Side(contraction=turned, reach=reach if needs_copy else None, is_transposed=True)
    return sides
