"""Where events go."""

from __future__ import annotations

from kbit_spark.config.paths import DataPath
from kbit_spark.schemas.base import Frozen


class TelemetryConfig(Frozen):
    """Sinks of a run's events; the console is always one."""

    metrics_table: DataPath | None = None
    """Path of the Delta table `metrics`; none: not written."""

    run_dir: str = ".kbit/runs"
    """Folder that gets one folder a run: config.yaml, events.jsonl."""

    csv: bool = False
    """Write events.csv beside events.jsonl as well."""
