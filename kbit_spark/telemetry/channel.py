"""One sink behind its own bounded queue and thread, so that a slow or broken sink harms nobody else."""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import Protocol

from kbit_spark.events import Event

log = logging.getLogger(__name__)
MAX_FAILURES = 3
CLOSE_TIMEOUT_S = 5.0


class Sink(Protocol):
    """What stores or shows events. Its methods are called from one thread; whatever they raise is counted."""

    name: str

    def write(self, event: Event) -> None:
        """Take one event; may buffer."""

    def tick(self) -> None:
        """Called at least about once a second, for work that depends on time."""

    def close(self) -> None:
        """Flush and release."""


class Channel:
    """Feeds one sink from a bounded queue; a full queue drops the event and counts it.

    Args:
        sink: its methods are called from a thread of the channel's own.
        capacity: events that the queue holds.
        close_timeout_s: how long the end of a run may wait for what is queued.

    Attributes:
        dropped: events that found the queue full or the sink disabled.
        failures: calls of the sink that raised.
    """

    def __init__(self, sink: Sink, capacity: int = 10_000, close_timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        self.sink = sink
        self.close_timeout_s = close_timeout_s
        self.dropped = 0
        self.failures = 0
        self.disabled = False
        self._consecutive = 0
        self._queue: queue.Queue[Event] = queue.Queue(capacity)
        self._closing = threading.Event()
        self._deadline = 0.0
        self._thread = threading.Thread(target=self._run, name=f"telemetry-{sink.name}", daemon=True)
        self._thread.start()

    def put(self, event: Event) -> None:
        """Queue one event; never blocks, never raises."""
        if self.disabled or self._closing.is_set():
            self.dropped += 1
            return
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            self.dropped += 1

    def start_closing(self) -> None:
        """Accept no more events; the thread writes what is queued and closes the sink."""
        self._deadline = time.monotonic() + self.close_timeout_s
        self._closing.set()

    def join(self) -> bool:
        """Wait for the thread, at most `close_timeout_s` from `start_closing` on; False if the sink hangs."""
        self._thread.join(max(0.0, self._deadline - time.monotonic()))
        return not self._thread.is_alive()

    def _run(self) -> None:
        ticked = time.monotonic()
        while not (self._closing.is_set() and self._queue.empty()):
            try:
                event: Event | None = self._queue.get(timeout=0.1)
            except queue.Empty:
                event = None
            if event is not None:
                self._guarded(event)
            if time.monotonic() - ticked >= 1.0:
                self._guarded(None)
                ticked = time.monotonic()
        self._close()

    def _guarded(self, event: Event | None) -> None:
        if self.disabled:
            self.dropped += event is not None
            return
        try:
            if event is None:
                self.sink.tick()
            else:
                self.sink.write(event)
                self._consecutive = 0
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        self._consecutive += 1
        log.debug("telemetry sink %s: %s", self.sink.name, error, exc_info=True)
        if self._consecutive >= MAX_FAILURES and not self.disabled:
            self.disabled = True
            log.warning("telemetry sink %s is off after %d failures: %s", self.sink.name, self.failures, error)

    def _close(self) -> None:
        try:
            self.sink.close()
        except Exception as error:
            self.failures += 1
            log.warning("telemetry sink %s did not close: %s", self.sink.name, error)
