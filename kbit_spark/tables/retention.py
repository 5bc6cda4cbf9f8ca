"""How long the files of a table version are safe from VACUUM."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from kbit_spark.errors import RunError

DEFAULT = "interval 1 week"
_PROPERTY = "delta.deletedFileRetentionDuration"
_SECONDS = {"week": 604_800, "day": 86_400, "hour": 3_600, "minute": 60, "second": 1, "millisecond": 1e-3}


def retention_s(configuration: Mapping[str, str | None]) -> float:
    """Return how long VACUUM leaves removed files alone by default, in seconds.

    Raises:
        RunError: the table's setting cannot be understood.
    """
    text = (configuration.get(_PROPERTY) or DEFAULT).strip().lower()
    parts = re.findall(r"(\d+)\s+([a-z]+?)s?\b", text)
    left = re.sub(r"(\d+)\s+([a-z]+?)s?\b", "", text).replace("interval", "").strip()
    if not parts or left or any(unit not in _SECONDS for _, unit in parts):
        msg = f"cannot understand the table's {_PROPERTY}={text!r}"
        raise RunError(msg, "set it as in `interval 7 days`")
    return sum(int(count) * _SECONDS[unit] for count, unit in parts)


def refuse_short_lived(
    table: str, version: int, kept_s: float, removed: Mapping[str, float], longest_run_s: float
) -> None:
    """Refuse a version whose files VACUUM might delete while a run still reads them.

    Args:
        table: the table, for the error.
        version: the version, for the error.
        kept_s: how long a removed file is kept.
        removed: files of the version that are removed already, and since when (s since 1970).
        longest_run_s: how long they must last from now on.

    Raises:
        RunError: the files may go too early; it says which, when and what to do.
    """
    if kept_s < longest_run_s:
        msg = (
            f"{table} keeps removed files for {_hours(kept_s)} only, but the run may take {_hours(longest_run_s)}: "
            "after a compaction VACUUM could delete what it reads"
        )
        raise RunError(msg, f"raise the table's {_PROPERTY}, or lower data.longest_run_s")
    if not removed:
        return
    path, since = min(removed.items(), key=lambda item: item[1])
    left = since + kept_s - time.time()
    if left < longest_run_s:
        when = f"in {_hours(left)}" if left > 0 else "at any time"
        msg = (
            f"{len(removed)} files of {table} version {version} are no longer part of the table, and VACUUM may delete "
            f"{path} {when}, but the run may take {_hours(longest_run_s)}"
        )
        raise RunError(msg, f"train on a newer version, raise {_PROPERTY}, or lower data.longest_run_s")


def _hours(seconds: float) -> str:
    return f"{seconds / 3_600:,.1f} h"
