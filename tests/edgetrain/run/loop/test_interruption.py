from __future__ import annotations

import signal
import threading

import pytest

from edgetrain.run.loop.interruption import catch_interruptions


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_nothing_else_happens(number: signal.Signals) -> None:
    with catch_interruptions() as interruption:
        assert not interruption
        signal.raise_signal(number)
        assert interruption
        assert interruption.name == number.name


def test_the_second_signal_acts_as_it_would_without_us() -> None:
    with catch_interruptions() as interruption:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert interruption.name == "SIGINT"


@pytest.mark.parametrize("is_signalled", [True, False])
def test_handlers_are_given_back(*, is_signalled: bool) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with catch_interruptions():
        assert signal.getsignal(signal.SIGTERM) is not before[1]
        if is_signalled:
            signal.raise_signal(signal.SIGTERM)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_another_thread_runs_without_handlers() -> None:
    seen: list[bool] = []

    def body() -> None:
        with catch_interruptions() as interruption:
            seen.append(bool(interruption))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [False]
