"""Stopping in good order: SIGTERM and the first SIGINT let the work under way finish, a second SIGINT ends at once."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

log = logging.getLogger("kbit.stop")


class StopRequest:
    """Whether a signal has asked to stop; takes the signals inside its `with`, if that is in Python's main thread.

    Args:
        unit: what finishes first, e.g. ``window``.
    """

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._asked = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():  # Python lets no other thread take signals
            self._before = {number: signal.signal(number, self._take) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def is_set(self) -> bool:
        """Tell whether it was asked to stop."""
        return self._asked.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for at most so long; return whether it was asked to stop."""
        return self._asked.wait(seconds)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self._asked.is_set():
            sys.stderr.write(f"error: interrupted twice; the {self._unit} goes on at the next start\n")
            sys.stderr.flush()
            os._exit(130)
        log.info("signal %d: the %s finishes first", number, self._unit)
        self._asked.set()
