"""The control channel, the driver's end: keeps each rank's last step and last lines, hands events on, says stop."""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import socket
import socketserver
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kbit_spark.events import Event

TAIL_LINES = 100
OWN_PAUSE_S = 2.0
"""Whoever asks for faulty ranks asks much more often than this, unless the driver itself stood still."""

log = logging.getLogger(__name__)


@dataclass
class RankState:
    """What the driver knows of one rank."""

    rank: int
    epoch: int = 0
    step: int = 0
    """Batches in all that the rank has finished."""
    pid: int = 0
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    connection: socket.socket | None = None
    left: bool = False
    """It said good-bye."""
    lost_at: float | None = None
    """When its connection closed without a good-bye, or it was given up."""
    heard_at: float = field(default_factory=time.monotonic)
    silent: bool = False
    """It was given up: its connection is there, but it says nothing."""
    failure: dict[str, str] | None = None
    failed_at: float | None = None


class Control:
    """Serves all ranks of a run; use it with `with`.

    Args:
        bind: address to listen on.
        on_event: gets every event of the current attempt; called from server threads.
        silence_s: a rank that says nothing for so long is lost; it is stopped, or hangs and holds Python's lock.
    """

    def __init__(self, bind: str, on_event: Callable[[Event], None], silence_s: float = 8.0) -> None:
        self.token = secrets.token_hex(16)
        self.attempt = 0
        self.ranks: dict[int, RankState] = {}
        self.stage_failure = ""
        self._stopping = False
        self._on_event = on_event
        self._silence_s, self._asked_at = silence_s, time.monotonic()
        self._lock = threading.Lock()
        self._server = _server(bind, self._serve)
        self._thread = threading.Thread(target=self._server.serve_forever, name="kbit-control", daemon=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Control:
        """Begin to listen."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop all ranks that are left, and listen no more."""
        self.stop_ranks()
        self._server.shutdown()
        self._server.server_close()

    def begin(self, attempt: int) -> None:
        """Forget the ranks of earlier attempts."""
        with self._lock:
            self.attempt, self.ranks, self.stage_failure, self._stopping = attempt, {}, "", False

    def faulty(self) -> list[RankState]:
        """Return the ranks that failed or were lost, the first fault first."""
        with self._lock:
            self._give_up_silent()
            states = [s for s in self.ranks.values() if s.lost_at is not None or s.failed_at is not None]
        return sorted(states, key=lambda s: min(t for t in (s.lost_at, s.failed_at) if t is not None))

    def _give_up_silent(self) -> None:
        now = time.monotonic()
        slept, self._asked_at = now - self._asked_at > OWN_PAUSE_S, now
        for state in self.ranks.values():
            if slept:  # this process was stopped itself, and has not read yet what came meanwhile
                state.heard_at = now
            elif state.connection is not None and not state.left and now - state.heard_at > self._silence_s:
                state.silent, state.lost_at = True, state.lost_at or now

    def await_fault(self, timeout_s: float) -> bool:
        """Wait until some rank is faulty, whose last words may still be on their way; return whether one is."""
        deadline = time.monotonic() + timeout_s
        while not self.faulty() and time.monotonic() < deadline:
            time.sleep(0.02)
        return bool(self.faulty())

    def last_step(self) -> int:
        """Return the number of batches that the foremost rank has finished."""
        with self._lock:
            return max((state.step for state in self.ranks.values()), default=0)

    def stop_ranks(self, timeout_s: float = 10.0) -> bool:
        """Make every connected rank end itself; return whether all connections closed in time."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            self._stopping = True
            connections = [s.connection for s in self.ranks.values() if s.connection is not None]
        for connection in connections:
            try:
                connection.sendall(b"stop\n")
            except OSError:
                continue  # already gone
        while self._connected() and time.monotonic() < deadline:
            time.sleep(0.05)
        return not self._connected()

    def _connected(self) -> bool:
        with self._lock:
            return any(s.connection is not None for s in self.ranks.values())

    def _serve(self, connection: socket.socket, lines: Any) -> None:
        state = self._greet(connection, lines)
        if state is None:
            return
        try:
            for line in lines:
                state.heard_at = time.monotonic()
                self._handle(state, json.loads(line))
        except (OSError, ValueError) as error:
            log.warning("rank %d: control channel: %s", state.rank, error)
        with self._lock:
            state.connection = None
            if not (state.left or state.silent or self._stopping):  # what it was told to do is no fault
                state.lost_at = time.monotonic()

    def _greet(self, connection: socket.socket, lines: Any) -> RankState | None:
        try:
            hello = json.loads(lines.readline(4096) or b"{}")
            known = hmac.compare_digest(str(hello.get("token", "")), self.token)
            if not known or hello["attempt"] != self.attempt:
                return None
            state = RankState(rank=int(hello["rank"]), pid=int(hello["pid"]), connection=connection)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        with self._lock:
            self.ranks[state.rank] = state
        return state

    def _handle(self, state: RankState, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "event":
            self._on_event(Event.from_dict(message["event"]))
        elif kind == "step":
            state.epoch, state.step = message["epoch"], message["step"]
        elif kind == "log":
            state.tail.append(message["line"])
        elif kind == "failed":
            with self._lock:
                state.failure, state.failed_at = message, time.monotonic()
        elif kind == "bye":
            state.left = True


def _server(bind: str, serve: Callable[[socket.socket, Any], None]) -> socketserver.ThreadingTCPServer:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            serve(self.connection, self.rfile)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    return Server((bind, 0), Handler)
