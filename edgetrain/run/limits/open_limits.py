"""Opens the limits on a run's memory besides the user's budget: memory pressure, and the other jobs of a share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from edgetrain.free_memory import read_memory
from edgetrain.locate import shares_dir
from edgetrain.run.limits.broker import Share, seat
from edgetrain.run.limits.governor import Limit
from edgetrain.run.limits.ladder import Ladder
from edgetrain.run.limits.pressure import PressureLimit
from edgetrain.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLimits:
    """In force until their block ends."""

    limits: tuple[Limit, ...] = ()
    granted_bytes: int | None = None  # of a share

    def begin_with(self, budget_bytes: int | None) -> Bytes | None:
        """What the first plan may use: the budget, or less where the share is less. None: no limit."""
        bounds = [n for n in (budget_bytes, self.granted_bytes) if n is not None]
        return Bytes(min(bounds)) if bounds else None


@contextlib.contextmanager
def open_limits(
    ladder: Ladder | None,
    *,
    adapt: bool,
    share: Share | None,
    budget_bytes: int | None,
    folder: Path,
    notify: Callable[[str], None],
) -> Iterator[OpenLimits]:
    """The limits that a job asked for; without a ladder there is nowhere to go, and there are none.

    Raises as `broker.seat` does.
    """
    pressure: tuple[Limit, ...] = (PressureLimit(read_memory),) if adapt else ()
    if ladder is None:
        yield OpenLimits()
        return
    if share is None:
        yield OpenLimits(limits=pressure)
        return
    most = ladder.best_within(budget_bytes) or ladder.lowest
    with seat(
        shares_dir(),
        share,
        folder=folder,
        least_bytes=ladder.lowest.needed_bytes,
        most_bytes=most.needed_bytes,
        notify=notify,
    ) as (place, granted_bytes):
        yield OpenLimits(limits=(*pressure, place), granted_bytes=granted_bytes)
