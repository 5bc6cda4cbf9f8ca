"""Jobs that are killed again and again."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Protocol

import psutil

from kbit_spark.training import checkpoint
from tests.fixtures.jobs import INGEST, SMALL, TRAIN, Job, eventually, start, table_version

EXECUTORS = 2
MASTER = ("--master", f"local-cluster[{EXECUTORS},1,700]", "--conf", "spark.executor.memory=700m", *SMALL)
LONGEST_START_S, LONGEST_BATCH_S = 12.0, 1.5
PATIENCE_S = 180.0
DRAIN_S, DRAIN_ROWS = 900.0, 5_000
EARLY_SHARE = 0.3
"""How many of the kills of a driver come while it starts."""

ENDS_THE_JOB = ("driver", "python", "all")
RANK_CPU_S = 0.5
"""A worker that has used less has not loaded torch."""


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


class Submitted:
    """A job on executors of its own, and what its victims have in common.

    Struck are the JVM of the driver, its Python process, both and the executors at once, one executor, or what a
    subclass names. Of the first two the rest must end by itself, while the next driver starts already.
    """

    _landmark: ClassVar[str]
    """What a job's progress is counted in."""

    _endless: ClassVar[Mapping[str, Any]] = {}
    """What the configuration has besides, for as long as the job is struck."""

    def __init__(self, folder: Path, data: Mapping[str, Any], seed: int, script: str = INGEST) -> None:
        """Prepare the job of a configuration; nothing runs yet."""
        self._folder, self._data, self._script = folder, dict(data), script
        self._chance = random.Random(seed)
        self._job: Job | None = None
        self._dead: list[Job] = []
        self._targets: dict[str, tuple[int, Callable[[Job], psutil.Process | None]]] = {
            "executor": (5, self._executor),
            "driver": (2, lambda job: psutil.Process(job.process.pid)),
            "python": (1, lambda job: job.python_driver()),
            "all": (2, lambda job: None),
        }

    def close(self) -> None:
        """See `Victim`."""
        for job in [*self._dead, *([self._job] if self._job else [])]:
            job.kill()

    def strike(self) -> str:
        """See `Victim`."""
        starting = self._job is None
        job = self._job or self._start({**self._data, **self._endless})
        self._job = job
        what = self._chance.choices(list(self._targets), [weight for weight, _ in self._targets.values()])[0]
        if starting and what in ("driver", "all") and self._chance.random() < EARLY_SHARE:
            time.sleep(self._chance.uniform(0, LONGEST_START_S))
            when = "while it starts"
        else:
            before = self._reached()
            eventually(lambda: self._reached() > before or job.process.poll() is not None, PATIENCE_S)
            self._check_alive(job)
            time.sleep(self._chance.uniform(0, LONGEST_BATCH_S))
            when = f"after {self._landmark} {self._reached()}"
        self._kill(job, what)
        return f"{what} {when}"

    def _reached(self) -> int:
        """Return how far the job has come: what grows with all that must not be lost."""
        raise NotImplementedError

    def _kill(self, job: Job, what: str) -> None:
        self._check_alive(job)
        with suppress(psutil.NoSuchProcess):
            job.remember()
        target = self._targets[what][1](job)
        if target is None:
            job.kill()
        else:
            target.kill()
        if what in ENDS_THE_JOB:
            self._buried()
            self._dead.append(job)
            self._job = None

    def _start(self, data: Mapping[str, Any], options: Sequence[str] = MASTER) -> Job:
        return start(self._folder, data, options, script=self._script, output=self._folder / "output.log")

    def _await_end(self) -> None:
        assert self._job is not None
        try:
            code, _ = self._job.wait(DRAIN_S)
        except subprocess.TimeoutExpired:
            code = None
        assert code == 0, self._told(self._job)

    def _check_alive(self, job: Job) -> None:
        assert job.process.poll() is None, f"the job ended by itself: {self._told(job)}"

    def _executor(self, job: Job) -> psutil.Process:
        return self._one_of(job, lambda process: "CoarseGrainedExecutorBackend" in _command(process))

    def _one_of(self, job: Job, wanted: Callable[[psutil.Process], bool]) -> psutil.Process:
        def found() -> list[psutil.Process]:
            return [p for p in psutil.Process(job.process.pid).children(recursive=True) if wanted(p)]

        eventually(lambda: bool(found()), PATIENCE_S)
        return self._chance.choice(found())

    def _buried(self) -> None:
        """Check that jobs struck before have ended altogether."""
        for job in self._dead:
            left = job.left_over(30)
            assert not left, f"still there after its driver was killed: {[_command(p) for p in left]}"
        self._dead.clear()

    def _told(self, job: Job) -> str:
        return f"exit code {job.process.poll()}\n" + (self._folder / "output.log").read_text(errors="replace")[-4_000:]


class Ingest(Submitted):
    """The ingest job."""

    name = "ingest"
    _landmark = "version"
    _endless: ClassVar[Mapping[str, Any]] = {"trigger": {"interval_s": 0}}

    def finish(self) -> None:
        """See `Victim`; reads the topics to their end."""
        if self._job is not None:
            self._job.kill()
        self._buried()
        self._data["kafka"] = {**self._data["kafka"], "max_offsets_per_trigger": DRAIN_ROWS}
        # executors of their own would only take longer
        self._job = self._start({**self._data, "trigger": {"available_now": True}}, SMALL)
        self._await_end()

    def _reached(self) -> int:
        return table_version(self._folder / "samples")


class Training(Submitted):
    """One training run; also struck are its ranks.

    Args:
        folder: gets the checkpoints.
        data: the configuration, of a model that takes its time for as long as the file `marker` is there.
        seed: of the kills.
        marker: removed when the run may come to its end.
    """

    name = "training"
    _landmark = "the checkpoint of step"

    def __init__(self, folder: Path, data: Mapping[str, Any], seed: int, marker: Path) -> None:
        super().__init__(folder, data, seed, TRAIN)
        self._marker = marker
        self._targets["rank"] = (4, self._rank)

    def finish(self) -> None:
        """See `Victim`; the rest of the run takes no time."""
        self._marker.unlink()
        if self._job is None:
            self._buried()
            self._job = self._start(self._data)
        self._await_end()

    def _rank(self, job: Job) -> psutil.Process:
        return self._one_of(job, lambda process: _is_worker(process) and process.cpu_times().user > RANK_CPU_S)

    def _reached(self) -> int:
        found = checkpoint.newest(self._folder / "checkpoints")
        return 0 if found is None else found.manifest.position.total_steps


def _is_worker(process: psutil.Process) -> bool:
    """Tell whether a process is a fork of Spark's Python daemon."""
    try:
        parent = process.parent()
    except psutil.Error:
        return False
    return parent is not None and all("pyspark.daemon" in _command(p) for p in (process, parent))


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
