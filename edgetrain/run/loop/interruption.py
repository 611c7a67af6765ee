"""Records Ctrl-C, SIGTERM and SIGHUP; the loop looks between steps, so that no step is cut short."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(slots=True)
class Interruption:
    """`name` is the signal that asked the run to stop, once one has."""

    name: str | None = None

    def __bool__(self) -> bool:
        return self.name is not None


@contextlib.contextmanager
def catch_interruptions() -> Iterator[Interruption]:
    """Notes the first SIGINT, SIGTERM or SIGHUP; a second one acts as it would have without us.

    What `nohup` has ignored stays ignored.
    Outside the main thread signals cannot be caught, and none is: the caller decides how such a run is stopped.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    if before[signal.SIGHUP] is signal.SIG_IGN:
        del before[signal.SIGHUP]

    def give_back() -> None:
        for number, handler in before.items():
            # None: installed by C code, which Python can neither name nor put back.
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def note(number: int, _frame: FrameType | None) -> None:
        interruption.name = signal.Signals(number).name
        give_back()

    for number in before:
        signal.signal(number, note)
    try:
        yield interruption
    finally:
        give_back()
