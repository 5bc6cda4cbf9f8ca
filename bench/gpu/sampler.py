"""A thread that looks at something again and again while something else runs."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from types import TracebackType

from typing_extensions import Self


class Sampler(ABC):
    """Context manager that calls `sample` every `every_s` seconds from when it is entered until it is left."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench sampler", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    @abstractmethod
    def sample(self) -> None:
        """Look once."""

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            self.sample()
