"""What Spark's SQL metrics say of the queries that ran, RAPIDS' own among them: by query and by node of its plan."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "B": 1.0}
_UNITS |= {f"{prefix}iB": 1024.0 ** (power + 1) for power, prefix in enumerate("KMGT")}
_WAIT_MS = 20_000


@dataclass(frozen=True)
class Execution:
    """One query.

    Args:
        id: counts up in a session.
        description: of its job.
        duration_s: from its submission to its end, planning not included.
        nodes: a name and its metrics, sums over all tasks in seconds, bytes or numbers; from the top.
    """

    id: int
    description: str
    duration_s: float
    nodes: tuple[tuple[str, dict[str, float]], ...]

    @property
    def writes(self) -> bool:
        """Whether it reads or writes a batch rather than the log of a table."""
        return any("Scan ExistingRDD" in name or "RDDScan" in name or "Write" in name for name, _ in self.nodes)


def last_id(spark: SparkSession) -> int:
    """Return the id of the last query."""
    return max((int(execution.executionId()) for execution in _all(spark)), default=-1)


def executions(spark: SparkSession, after: int) -> list[Execution]:
    """Return the queries that ended, with ids above `after`."""
    store = _store(spark)
    found = []
    for execution in _all(spark):
        number = int(execution.executionId())
        if number <= after or execution.completionTime().isEmpty():
            continue
        duration_s = (execution.completionTime().get().getTime() - execution.submissionTime()) / 1000
        description = " ".join(execution.description().split())[:60]
        found.append(Execution(number, description, duration_s, tuple(_nodes(store, number))))
    return sorted(found, key=lambda execution: execution.id)


def _store(spark: SparkSession) -> Any:
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(_WAIT_MS)
    return spark._jsparkSession.sharedState().statusStore()


def _all(spark: SparkSession) -> Iterator[Any]:
    found = _store(spark).executionsList()
    return (found.apply(index) for index in range(found.size()))


def _nodes(store: Any, execution: int) -> Iterator[tuple[str, dict[str, float]]]:
    values = dict(_pairs(str(store.executionMetrics(execution).mkString("\1"))))
    nodes = store.planGraph(execution).allNodes()
    for node in (nodes.apply(index) for index in range(nodes.size())):
        listed = node.metrics()
        metrics = (listed.apply(index) for index in range(listed.size()))
        known = ((str(metric.name()), values.get(int(metric.accumulatorId()))) for metric in metrics)
        yield str(node.name()), {name: value for name, value in known if value}


def _pairs(text: str) -> Iterator[tuple[int, float]]:
    for pair in text.split("\1") if text else ():
        number, _, value = pair.partition(" -> ")
        yield int(number), parsed(value)


def parsed(text: str) -> float:
    """Return a metric as Spark shows it, the total in the last line (``1.5 s (…)`` or ``1,234``), in base units."""
    match = re.match(r"([\d,.]+)\s*([A-Za-z]*)", text.splitlines()[-1].strip()) if text.strip() else None
    if match is None:
        return 0.0
    return float(match[1].replace(",", "")) * _UNITS.get(match[2], 1.0)


def described(found: Sequence[Execution]) -> str:
    """Return the queries as text; nodes for those that write a batch."""
    lines = []
    for execution in found:
        lines.append(f"query {execution.id}: {execution.duration_s:.3f} s  {execution.description}")
        for name, metrics in execution.nodes if execution.writes else ():
            told = ", ".join(f"{key}: {value:,.3f}" for key, value in sorted(metrics.items()))
            lines.append(f"    {name}  {told}")
    return "\n".join(lines)
