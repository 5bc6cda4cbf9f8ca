"""Saves in the background: a step waits for the copy of the state, not for the disk."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch

Item = TypeVar("Item")


def host_copy(state: Any) -> Any:
    """Return a copy of nested dicts, lists and tuples whose tensors live in memory of their own on the CPU."""
    copied = _copy(state)
    if torch.cuda.is_available():
        torch.cuda.current_stream().synchronize()  # copies into page-locked memory are asynchronous
    return copied


class Saver(Generic[Item]):
    """Hands items to `write` in a thread, one at a time, in order.

    While one is being written, another may wait; a newer one takes its place. An exception of `write` is kept for
    `failure`.
    """

    def __init__(self, write: Callable[[Item], object]) -> None:
        self._write = write
        self._current: Item | None = None
        self._waiting: Item | None = None
        self._closed = False
        self._error: Exception | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="kbit-saver", daemon=True)
        self._thread.start()

    def submit(self, item: Item) -> None:
        """Have `item` written; returns at once."""
        with self._changed:
            if self._current is None:
                self._current = item
            else:
                self._waiting = item
            self._changed.notify_all()

    def drain(self) -> None:
        """Wait until everything is written."""
        with self._changed:
            self._changed.wait_for(lambda: self._current is None)

    def failure(self) -> Exception | None:
        """Return the first exception of `write` since the last call, None where all went well."""
        with self._changed:
            error, self._error = self._error, None
            return error

    def close(self) -> None:
        """Write what waits, then end the thread."""
        self.drain()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while (item := self._next()) is not None:
            error: Exception | None = None
            try:
                self._write(item)
            except Exception as caught:  # whoever asks for `failure` decides what it means
                error = caught
            with self._changed:
                self._error = self._error or error
                self._current, self._waiting = self._waiting, None
                self._changed.notify_all()

    def _next(self) -> Item | None:
        with self._changed:
            self._changed.wait_for(lambda: self._current is not None or self._closed)
            return self._current


def _copy(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        pinned = value.device.type == "cuda"
        # Strides included: a fused optimizer refuses state whose memory format is not its parameter's.
        copied = torch.empty_like(value, device="cpu", pin_memory=pinned)
        return copied.copy_(value.detach(), non_blocking=pinned)
    if isinstance(value, dict):
        items = {key: _copy(item) for key, item in value.items()}
        return items if (versions := getattr(value, "_metadata", None)) is None else _state_dict(items, versions)
    if isinstance(value, list | tuple):
        return type(value)(_copy(item) for item in value)
    return value


def _state_dict(items: dict[str, Any], versions: Any) -> OrderedDict[str, Any]:
    """Return a module's state as it gives it, with the versions that it asks for when it takes it again."""
    state = OrderedDict(items)
    state._metadata = versions  # type: ignore[attr-defined]
    return state
