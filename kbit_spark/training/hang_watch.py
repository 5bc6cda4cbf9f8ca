"""Ends a rank whose GPU waits for ever in a CUDA graph: NCCL's watchdog knows of no collective there.

Another rank may be alive and still never come: it waits for a file that does not arrive, or for a lock.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Hashable

from kbit_spark.errors import RunError

POLL_S = 5.0
TELL_S = 0.5
"""How long what is logged may take to reach the driver."""

log = logging.getLogger(__name__)


def _end_process(timeout_s: float) -> None:
    log.error(
        "the GPU has ended no step for %.0f s: another rank did not come to a collective, or the GPU hangs", timeout_s
    )
    time.sleep(TELL_S)
    os._exit(RunError.exit_code)


class HangWatch:
    """Watches in a thread until it is closed.

    Args:
        progress: tells how far the GPU is, something else after every step; None while it has nothing to do.
        timeout_s: how long it may stay where it is.
        poll_s: how often it is asked.
        end: is called then, from the thread: by default it ends the process, as NCCL's watchdog does, for the main
            thread waits for the GPU and cannot be woken.
    """

    def __init__(
        self,
        progress: Callable[[], Hashable | None],
        timeout_s: float,
        poll_s: float = POLL_S,
        end: Callable[[float], None] = _end_process,
    ) -> None:
        self._progress, self._poll_s, self._end = progress, poll_s, end
        self._timeout_s, self._most = timeout_s, max(1, round(timeout_s / poll_s))
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="kbit-hang-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        before, same = None, 0
        while not self._closed.wait(self._poll_s):
            now = self._progress()
            # answers are counted, not seconds: a process that was stopped for an hour has not waited for that hour
            same = same + 1 if now is not None and now == before else 0
            before = now
            if same >= self._most:
                self._end(self._timeout_s)
                return
