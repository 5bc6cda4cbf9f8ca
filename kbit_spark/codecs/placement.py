"""Which engine decodes a batch, and why: pure logic over speeds that the stream itself shows.

A batch's speed counts all of its work, from the read to the files: the GPU decodes fast, but what surrounds that costs
the same for a small batch as for a large one. So batches are compared with batches of their size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from kbit_spark.schemas import Engine

Mode = Literal["auto", "gpu", "cpu"]

MEASURED = 2
"""Batches of a size that each engine runs before they are compared; its first batch of all is warming up."""
RECENT = 3
"""Batches by which the engine that was chosen is judged from then on."""
HOPELESS = 0.5
"""An engine that runs one batch below this share of the other's speed is not measured again."""
COLLAPSED = 0.8
"""The chosen engine is left where its recent speed falls below this share of the other's."""
MOST_CHANGES = 3
"""Changes of a decision: two engines that disturb each other must not alternate for ever."""
MOST_FAILURES = 3
"""Batches that the GPU may fail; the stream stays on the CPU then."""


@dataclass(frozen=True)
class Work:
    """What a batch asks of an engine."""

    plan: str
    """Names formats and schemas: batches of one plan are alike but for their size."""

    rows: int
    refusal: str | None = None
    """Why the GPU cannot decode it; None where it can."""

    @property
    def size(self) -> int:
        """The batch's size class: batches of one class differ by less than a factor of two."""
        return self.rows.bit_length()

    @property
    def rows_like(self) -> str:
        """The rows of the class, for a person."""
        return f"{1 << max(0, self.size - 1):,} to {(1 << self.size) - 1:,} rows"


@dataclass(frozen=True)
class Choice:
    """The engine for a batch."""

    engine: Engine
    reason: str
    news: bool = False
    """The first batch with this reason: tell it now, and not again."""


@dataclass
class _Record:
    """What batches of one plan and size have shown."""

    speeds: dict[Engine, list[float]] = field(default_factory=lambda: {"cpu": [], "gpu": []})
    chosen: Engine | None = None
    reason: str = ""
    changes: int = 0

    def speed(self, engine: Engine) -> float:
        """Return what the engine has shown lately, in rows a second; one batch that was held up does not count."""
        return median(self.speeds[engine])


class Placement:
    """Chooses between the engines.

    Args:
        mode: `auto` measures both; `gpu` and `cpu` are taken at their word, as far as the GPU can do it.
    """

    def __init__(self, mode: Mode) -> None:
        self._mode = mode
        self._records: dict[tuple[str, int], _Record] = defaultdict(_Record)
        self._warm: set[tuple[str, Engine]] = set()
        self._failures: list[str] = []
        self._told: set[tuple[str, int, str]] = set()

    def choose(self, work: Work) -> Choice:
        """Return the engine for a batch."""
        if self._mode == "cpu":
            return self._tell(work, "cpu", "decode.placement is cpu", news=False)
        if work.refusal is not None:
            return self._tell(work, "cpu", work.refusal, any_size=True)
        if len(self._failures) >= MOST_FAILURES:
            return self._tell(
                work, "cpu", f"the GPU failed {MOST_FAILURES} batches, lately: {self._failures[-1]}", any_size=True
            )
        if self._mode == "gpu":
            return self._tell(work, "gpu", "decode.placement is gpu", any_size=True)
        if work.rows == 0:
            return Choice("cpu", "an empty batch")
        record = self._records[work.plan, work.size]
        if record.chosen is None and (engine := self._to_measure(record)) is not None:
            return Choice(engine, "measuring")
        self._decide(record, work)
        assert record.chosen is not None
        return self._tell(work, record.chosen, record.reason)

    def ran(self, work: Work, engine: Engine, duration_s: float) -> None:
        """Take the time of a batch, from its read to its files."""
        if work.rows == 0:
            return
        if (work.plan, engine) not in self._warm:  # kernels and the JVM's code are compiled in it
            self._warm.add((work.plan, engine))
            return
        speeds = self._records[work.plan, work.size].speeds[engine]
        speeds.append(work.rows / max(duration_s, 1e-9))
        del speeds[:-RECENT]

    def failed(self, reason: str) -> None:
        """Take a batch that the GPU failed and the CPU did not."""
        self._failures.append(reason)

    def _to_measure(self, record: _Record) -> Engine | None:
        """Return the engine whose speed is not known well enough; None where both are."""
        known = record.speeds
        engines: tuple[tuple[Engine, Engine], ...] = (("gpu", "cpu"), ("cpu", "gpu"))
        for engine, other in engines:
            if len(known[engine]) >= MEASURED:
                continue
            hopeless = known[engine] and known[other] and max(known[engine]) < HOPELESS * min(known[other])
            if not hopeless:
                return engine
        return None

    def _decide(self, record: _Record, work: Work) -> None:
        cpu, gpu = record.speed("cpu"), record.speed("gpu")
        if record.chosen is None:
            record.chosen = "gpu" if gpu > cpu else "cpu"
        elif record.changes < MOST_CHANGES and self._has_collapsed(record):
            record.chosen = _other(record.chosen)
            record.changes += 1
        else:
            return
        faster, slower = (gpu, cpu) if record.chosen == "gpu" else (cpu, gpu)
        record.reason = (
            f"{record.chosen}: {faster:,.0f} rows/s, {_other(record.chosen)}: {slower:,.0f} rows/s "
            f"in batches of {work.rows_like}"
        )

    def _has_collapsed(self, record: _Record) -> bool:
        assert record.chosen is not None
        return record.speed(record.chosen) < COLLAPSED * record.speed(_other(record.chosen))

    def _tell(self, work: Work, engine: Engine, reason: str, *, news: bool = True, any_size: bool = False) -> Choice:
        key = (work.plan, -1 if any_size else work.size, reason)
        first = news and key not in self._told
        self._told.add(key)
        return Choice(engine, reason, first)


def _other(engine: Engine) -> Engine:
    return "cpu" if engine == "gpu" else "gpu"


def joined(refusals: Iterable[tuple[str, str]]) -> str:
    """Return reasons of several topics as one text."""
    return "; ".join(f"topic {topic}: {reason}" for topic, reason in refusals)
