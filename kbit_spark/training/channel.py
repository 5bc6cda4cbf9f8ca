"""The control channel, a rank's end: events, log lines and steps go to the driver live, `stop` comes back.

JSON lines over one TCP connection that begins with the run's token. Sending never blocks the training loop.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import threading
import time
from collections import deque
from typing import Any

from kbit_spark.errors import KbitError
from kbit_spark.events import Event

SEND_INTERVAL_S = 0.02
"""How old the driver's knowledge of a rank that is killed may be: the post-mortem names its step."""
ALIVE_INTERVAL_S = 1.0
"""How often a rank that has nothing else to say tells that it lives."""

log = logging.getLogger(__name__)


class Client:
    """A rank's connection to the driver; without one it only watches for its parent's death.

    A rank whose driver or whose parent process is gone ends itself: nobody would else.
    """

    def __init__(self, address: tuple[str, int], token: str, rank: int, attempt: int) -> None:
        self._lines: deque[dict[str, Any]] = deque(maxlen=10_000)
        self._step: tuple[int, int] | None = None
        self._closing = threading.Event()
        self._parent = os.getppid()
        self._socket = _connect(address, {"token": token, "rank": rank, "attempt": attempt, "pid": os.getpid()})
        self._sender = threading.Thread(target=self._send, name="kbit-channel-send", daemon=True)
        self._watcher = threading.Thread(target=self._watch, name="kbit-channel-watch", daemon=True)
        self._sender.start()
        self._watcher.start()

    def emit(self, event: Event) -> None:
        """Send an event."""
        self._lines.append({"type": "event", "event": event.to_dict()})

    def log(self, text: str) -> None:
        """Send log text, a line at a time."""
        self._lines.extend({"type": "log", "line": line} for line in text.splitlines())

    def step(self, epoch: int, total_steps: int) -> None:
        """Tell the position; only the newest one is sent."""
        self._step = (epoch, total_steps)

    def fail(self, error: BaseException, *, by_peer: bool) -> None:
        """Tell that this rank failed; `by_peer` if only because of another one.

        The kind is `fatal` for a fault that no restart would mend, `echo` for one of another rank, and else `error`, or
        `peer` for the loss of another rank.
        """
        fatal = isinstance(error, KbitError)
        message = error.message if isinstance(error, KbitError) else f"{type(error).__name__}: {error}"
        hint = error.hint if isinstance(error, KbitError) else ""
        kind = ("echo" if by_peer else "fatal") if fatal else ("peer" if by_peer else "error")
        self._lines.append({"type": "failed", "kind": kind, "message": message, "hint": hint})

    def close(self) -> None:
        """Send what is left and say good-bye."""
        self._lines.append({"type": "bye"})
        self._closing.set()
        self._sender.join(timeout=5)
        if self._socket is not None:
            self._socket.close()

    def _send(self) -> None:
        done, sent_at = False, time.monotonic()
        while not done:
            done = self._closing.wait(SEND_INTERVAL_S)
            lines = []
            while self._lines:
                lines.append(self._lines.popleft())
            step, self._step = self._step, None
            if step is not None:
                lines.insert(0, {"type": "step", "epoch": step[0], "step": step[1]})
            if not lines and time.monotonic() - sent_at > ALIVE_INTERVAL_S:
                lines.append({"type": "alive"})
            if lines and self._socket is not None:
                sent_at = time.monotonic()
                try:
                    self._socket.sendall(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
                except OSError:
                    return  # the watcher decides what a lost driver means

    def _watch(self) -> None:
        while not self._closing.wait(0.0 if self._socket is not None else 1.0):
            if os.getppid() != self._parent or (self._socket is not None and self._told_to_stop(self._socket)):
                if self._closing.is_set():
                    return
                os.kill(os.getpid(), signal.SIGKILL)  # a collective cannot be interrupted in any gentler way

    def _told_to_stop(self, connection: socket.socket) -> bool:
        try:
            return connection.recv(64) is not None  # anything the driver says, and its end, mean stop
        except TimeoutError:
            return False
        except OSError:
            return True


def _connect(address: tuple[str, int], hello: dict[str, Any]) -> socket.socket | None:
    try:
        connection = socket.create_connection(address, timeout=5)
        connection.sendall(json.dumps(hello).encode() + b"\n")
    except OSError as error:
        log.warning("no control channel to the driver at %s:%d (%s); training goes on without", *address, error)
        return None
    connection.settimeout(1.0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return connection
