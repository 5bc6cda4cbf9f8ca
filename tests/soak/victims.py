"""Jobs that are killed again and again."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import psutil

from tests.fixtures.jobs import SMALL, Job, eventually, start, table_version

EXECUTORS = 2
MASTER = ("--master", f"local-cluster[{EXECUTORS},1,700]", "--conf", "spark.executor.memory=700m", *SMALL)
LONGEST_START_S, LONGEST_BATCH_S = 12.0, 1.5
PATIENCE_S = 180.0
DRAIN_S, DRAIN_ROWS = 900.0, 5_000
EARLY_SHARE = 0.3
"""How many of the kills of a driver come while it starts."""


class Victim(Protocol):
    """A job that can be killed, and goes on from where it was."""

    name: str

    def strike(self) -> str:
        """Start the job if it does not run, kill one of its processes at some moment, and return what was killed.

        Raises:
            AssertionError: the job ended by itself, or got nowhere since the last strike.
        """

    def finish(self) -> None:
        """Let the job come to its own end, or check that it has.

        Raises:
            AssertionError: it ended with an error, or processes of earlier strikes are still there.
        """

    def close(self) -> None:
        """Leave no process."""


class Ingest:
    """The ingest job on executors of their own.

    Struck are the JVM of the driver, its Python process, both and the executors at once, or one executor. Of the first
    two the rest must end by itself, while the next driver starts already.
    """

    name = "ingest"

    def __init__(self, folder: Path, data: Mapping[str, Any], seed: int) -> None:
        """Prepare the job of a configuration; nothing runs yet."""
        self._folder, self._data = folder, dict(data)
        self._chance = random.Random(seed)
        self._job: Job | None = None
        self._dead: list[Job] = []
        self._targets: Mapping[str, Callable[[Job], psutil.Process | None]] = {
            "executor": self._executor,
            "driver": lambda job: psutil.Process(job.process.pid),
            "python": lambda job: job.python_driver(),
            "all": lambda job: None,
        }

    def strike(self) -> str:
        """See `Victim`."""
        starting = self._job is None
        job = self._job or self._start({"interval_s": 0})
        self._job = job
        what = self._chance.choices(list(self._targets), (5, 2, 1, 2))[0]
        if starting and what in ("driver", "all") and self._chance.random() < EARLY_SHARE:
            time.sleep(self._chance.uniform(0, LONGEST_START_S))
            when = "while it starts"
        else:
            self._await_batch(job)
            time.sleep(self._chance.uniform(0, LONGEST_BATCH_S))
            when = f"after version {table_version(self._folder / 'samples')}"
        self._check_alive(job)
        with suppress(psutil.NoSuchProcess):
            job.remember()
        target = self._targets[what](job)
        if target is None:
            job.kill()
        else:
            target.kill()
        if what != "executor":
            self._buried()
            self._dead.append(job)
            self._job = None
        return f"{what} {when}"

    def finish(self) -> None:
        """See `Victim`; reads the topics to their end."""
        if self._job is not None:
            self._job.kill()
        self._buried()
        self._data["kafka"] = {**self._data["kafka"], "max_offsets_per_trigger": DRAIN_ROWS}
        self._job = self._start({"available_now": True}, SMALL)  # executors of their own would only take longer
        try:
            code, _ = self._job.wait(DRAIN_S)
        except subprocess.TimeoutExpired:
            code = None
        assert code == 0, self._told(self._job)

    def close(self) -> None:
        """See `Victim`."""
        for job in [*self._dead, *([self._job] if self._job else [])]:
            job.kill()

    def _start(self, trigger: Mapping[str, Any], options: Sequence[str] = MASTER) -> Job:
        data = {**self._data, "trigger": trigger}
        return start(self._folder, data, options, output=self._folder / "output.log")

    def _await_batch(self, job: Job) -> None:
        before = table_version(self._folder / "samples")
        eventually(
            lambda: table_version(self._folder / "samples") > before or job.process.poll() is not None, PATIENCE_S
        )
        self._check_alive(job)

    def _check_alive(self, job: Job) -> None:
        assert job.process.poll() is None, f"the job ended by itself: {self._told(job)}"

    def _executor(self, job: Job) -> psutil.Process:
        def executors() -> list[psutil.Process]:
            found = psutil.Process(job.process.pid).children(recursive=True)
            return [p for p in found if "CoarseGrainedExecutorBackend" in _command(p)]

        eventually(lambda: bool(executors()), PATIENCE_S)
        return self._chance.choice(executors())

    def _buried(self) -> None:
        """Check that jobs struck before have ended altogether."""
        for job in self._dead:
            left = job.left_over(30)
            assert not left, f"still there after its driver was killed: {[_command(p) for p in left]}"
        self._dead.clear()

    def _told(self, job: Job) -> str:
        return f"exit code {job.process.poll()}\n" + (self._folder / "output.log").read_text(errors="replace")[-4_000:]


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
