"""Run a command and watch it: batch times from a streaming checkpoint's files, CPU seconds of the whole process tree.

Both are read from outside, so product and peer are measured by the same clock.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psutil

ROOT = Path(__file__).parents[1]
SAMPLE_S = 0.25


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment and `more`, for a process that imports the project from here."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, **more}


@dataclass
class Watch:
    """What was seen of one run."""

    wall_s: float
    cpu: list[tuple[float, float]] = field(default_factory=list)
    """(time, CPU seconds of the process tree so far), every `SAMPLE_S` seconds."""

    peak_rss_bytes: int = 0

    def cpu_between(self, start: float, end: float) -> float:
        """Return the CPU seconds that the process tree used from `start` to `end` (seconds since the epoch)."""
        before = [cpu for at, cpu in self.cpu if at <= start] or [0.0]
        until = [cpu for at, cpu in self.cpu if at <= end] or [0.0]
        return until[-1] - before[-1]


def run(command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> Watch:
    """Run `command` to its end, its output in `log`.

    Raises:
        RuntimeError: it failed; the message holds the last lines of its output.
    """
    begin = time.time()
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        watch = Watch(wall_s=0.0)
        sampler = threading.Thread(target=_sample, args=(process, watch), daemon=True)
        sampler.start()
        code = process.wait()
        sampler.join()
    watch.wall_s = time.time() - begin
    if code != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        msg = f"{' '.join(command)} ended with {code}:\n{tail}"
        raise RuntimeError(msg)
    return watch


def _sample(process: subprocess.Popen[bytes], watch: Watch) -> None:
    used: dict[int, float] = {}  # by process, so that one that has ended still counts
    root = psutil.Process(process.pid)
    while process.poll() is None:
        rss = 0
        try:
            tree = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            break
        for member in tree:
            try:
                times = member.cpu_times()
                used[member.pid] = times.user + times.system
                rss += member.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        watch.cpu.append((time.time(), sum(used.values())))
        watch.peak_rss_bytes = max(watch.peak_rss_bytes, rss)
        time.sleep(SAMPLE_S)


@dataclass(frozen=True)
class Batches:
    """Completion times of the micro-batches of one run, in seconds since the epoch."""

    done: tuple[float, ...]

    @classmethod
    def of_checkpoint(cls, checkpoint: Path) -> Batches:
        """Read them from the commit log, which Spark writes at the end of each batch."""
        files = [file for file in (checkpoint / "commits").iterdir() if file.name.isdigit()]
        return cls(tuple(file.stat().st_mtime for file in sorted(files, key=lambda file: int(file.name))))

    def steady_s(self, warm_up: int) -> list[float]:
        """Return the time from one batch's end to the next one's, after `warm_up` batches."""
        return [end - start for start, end in zip(self.done[warm_up - 1 :], self.done[warm_up:], strict=False)]


@dataclass(frozen=True)
class Rate:
    """Speed of one run once warm."""

    batch_s: float
    """Median time of a batch."""

    rows_per_s: float
    rows_per_cpu_s: float


def rate(watch: Watch, batches: Batches, batch_rows: int, warm_up: int) -> Rate:
    """Return the steady speed of a run with `batch_rows` rows in each batch."""
    steady = batches.steady_s(warm_up)
    cpu_s = watch.cpu_between(batches.done[warm_up - 1], batches.done[-1])
    return Rate(
        batch_s=median(steady),
        rows_per_s=batch_rows / median(steady),
        rows_per_cpu_s=batch_rows * len(steady) / max(cpu_s, 1e-9),
    )


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a markdown table."""
    lines = [header, ["-"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
