"""What a signal does to work under way."""

from __future__ import annotations

import os
import signal
import threading

from kbit_spark.stopping import StopRequest


def test_a_signal_asks_to_stop_and_the_handlers_come_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with StopRequest("batch") as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(5)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_in_a_thread_the_handlers_stay_as_they_are() -> None:
    """A notebook or a service may run a job outside Python's main thread, where signals cannot be taken."""
    before, seen = signal.getsignal(signal.SIGTERM), list[object]()

    def work() -> None:
        with StopRequest("batch") as stop:
            seen.extend([stop.is_set(), signal.getsignal(signal.SIGTERM)])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False, before]
    assert signal.getsignal(signal.SIGTERM) == before
