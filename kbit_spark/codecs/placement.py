"""Which engine decodes a batch, and why: pure logic over speeds that the stream itself shows.

A batch's speed counts all of its work, from the read to the files: the GPU decodes fast, but what surrounds that costs
the same for a small batch as for a large one. So batches are compared with batches of their size.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from kbit_spark.schemas.base import Engine

Mode = Literal["auto", "gpu", "cpu"]
_ENGINES: tuple[Engine, Engine] = ("gpu", "cpu")

WARM_UP = 3
"""Batches of a plan in which an engine warms up: classes are loaded, kernels and the JVM's code compiled. The engines
take turns, so that neither is judged by a colder process than the other."""
MEASURED = 2
"""Batches of a size that each warm engine runs before they are compared."""
RECENT = 3
"""Batches by which the engine that was chosen is judged from then on."""
HOPELESS = 0.5
"""An engine that runs one batch below this share of the other's speed is not measured again; half of that while it
warms up, but for its very first batch."""
FIRST_LOOK, LAST_LOOK = 8, 512
"""Batches of a size from a decision to one by the other engine, to see whether it has become the better one; twice as
many to the next such look, and so on. A JVM's code gets faster for dozens of batches, and machines change."""
LOOKS_COST = 0.04
"""Share of the time that looks at the slower engine may cost: the slower it is, the rarer they are."""
BETTER = 1.05
"""A look changes the engine where it was this much faster."""
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
    cold: dict[Engine, list[float]] = field(default_factory=lambda: {"cpu": [], "gpu": []})
    """Speeds while the engine warmed up."""

    chosen: Engine | None = None
    reason: str = ""
    changes: int = 0
    looks: int = 0
    since: int = 0
    """Batches since the decision, or since the last look."""

    def speed(self, engine: Engine) -> float:
        """Return what the engine has shown lately, in rows a second; one batch that was held up does not count."""
        return median(self.speeds[engine] or self.cold[engine])

    def ran(self, engine: Engine) -> int:
        """Return the batches that count towards a decision."""
        return len(self.cold[engine]) + len(self.speeds[engine])

    def is_hopeless(self, engine: Engine) -> bool:
        """Tell whether an engine need not be measured further."""
        other = _other(engine)
        if self.speeds[engine] and self.speeds[other]:
            return max(self.speeds[engine]) < HOPELESS * min(self.speeds[other])
        shown, others = (self.cold[one] + self.speeds[one] for one in (engine, other))
        return bool(shown and others) and max(shown) < HOPELESS / 2 * min(others)


class Placement:
    """Chooses between the engines.

    Args:
        mode: `auto` measures both; `gpu` and `cpu` are taken at their word, as far as the GPU can do it.
    """

    def __init__(self, mode: Mode) -> None:
        self._mode = mode
        self._records: dict[tuple[str, int], _Record] = defaultdict(_Record)
        self._ran: Counter[tuple[str, Engine]] = Counter()
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
        if record.chosen is None and (engine := self._to_measure(record, work.plan)) is not None:
            return Choice(engine, "measuring")
        self._decide(record, work)
        assert record.chosen is not None
        if self._look_is_due(record):
            return Choice(_other(record.chosen), "measuring again")
        return self._tell(work, record.chosen, record.reason)

    def ran(self, work: Work, engine: Engine, duration_s: float) -> None:
        """Take the time of a batch, from its read to its files."""
        if work.rows == 0:
            return
        record, speed = self._records[work.plan, work.size], work.rows / max(duration_s, 1e-9)
        self._ran[work.plan, engine] += 1
        if self._ran[work.plan, engine] == 1:
            return
        if self._ran[work.plan, engine] <= WARM_UP and record.chosen is None:
            record.cold[engine].append(speed)
            return
        record.since += 1
        if record.chosen not in (None, engine):  # a look: what it has shown long ago no longer counts
            record.speeds[engine].clear()
            record.looks += 1
            record.since = 0
        record.speeds[engine].append(speed)
        del record.speeds[engine][:-RECENT]

    def failed(self, reason: str) -> None:
        """Take a batch that the GPU failed and the CPU did not."""
        self._failures.append(reason)

    def _to_measure(self, record: _Record, plan: str) -> Engine | None:
        """Return the engine whose speed is not known well enough, in turns; None where both are."""
        wanted = [
            engine
            for engine in _ENGINES
            if (self._ran[plan, engine] < WARM_UP or len(record.speeds[engine]) < MEASURED)
            and not record.is_hopeless(engine)
        ]
        return min(wanted, key=lambda engine: (record.ran(engine), self._ran[plan, engine]), default=None)

    def _look_is_due(self, record: _Record) -> bool:
        assert record.chosen is not None
        faster, slower = record.speed(record.chosen), record.speed(_other(record.chosen))
        least = min(LAST_LOOK, FIRST_LOOK << record.looks)
        return record.since >= max(least, (faster / slower - 1) / LOOKS_COST)

    def _decide(self, record: _Record, work: Work) -> None:
        cpu, gpu = record.speed("cpu"), record.speed("gpu")
        if record.chosen is None:
            record.chosen = "gpu" if gpu > cpu else "cpu"
            record.since = 0
        elif record.looks and record.since == 0 and self._is_worse(record, BETTER):
            record.chosen = _other(record.chosen)
            record.since = 1
        elif record.changes < MOST_CHANGES and self._is_worse(record, 1 / COLLAPSED):
            record.chosen = _other(record.chosen)
            record.changes += 1
        else:
            return
        faster, slower = (gpu, cpu) if record.chosen == "gpu" else (cpu, gpu)
        record.reason = (
            f"{record.chosen}: {faster:,.0f} rows/s, {_other(record.chosen)}: {slower:,.0f} rows/s "
            f"in batches of {work.rows_like}"
        )

    def _is_worse(self, record: _Record, factor: float) -> bool:
        """Tell whether the other engine is more than `factor` times as fast as the chosen one."""
        assert record.chosen is not None
        return record.speed(_other(record.chosen)) > factor * record.speed(record.chosen)

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
