"""Runs an iterator ahead of its consumer, in a thread with a bounded queue."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Prefetch(Generic[Item]):
    """An iterator over `source` that stays up to `depth` items ahead.

    An exception of the source is raised at the consumer. `close` ends the thread; use it with `contextlib.closing`.
    """

    def __init__(self, source: Iterator[Item], depth: int) -> None:
        self._queue: queue.Queue[tuple[Item | None, BaseException | None]] = queue.Queue(max(1, depth))
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._fill, args=(source,), name="kbit-prefetch", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Item]:
        """Yield the source's items in order."""
        return self

    def __next__(self) -> Item:
        """Return the next item, waiting for it if need be."""
        if self._stopped.is_set():
            raise StopIteration
        item, error = self._queue.get()
        if error is not None:
            self._stopped.set()
            raise error
        return item  # type: ignore[return-value]  # without an error there is an item

    def close(self) -> None:
        """End the thread and wait for it."""
        self._stopped.set()
        self._thread.join()

    def _fill(self, source: Iterator[Item]) -> None:
        try:
            for item in source:
                if not self._put((item, None)):
                    return
            self._put((None, StopIteration()))
        except BaseException as error:  # the consumer must hear of every fault, or it would wait for ever
            self._put((None, error))

    def _put(self, entry: tuple[Item | None, BaseException | None]) -> bool:
        while not self._stopped.is_set():
            try:
                self._queue.put(entry, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False
