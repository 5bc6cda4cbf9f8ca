"""When the records of data files were made, by Kafka's timestamps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kbit_spark.errors import RunError
from kbit_spark.schemas.snapshot import DataFile
from kbit_spark.storage import filesystem

COLUMN = "_timestamp"


def event_times(files: Sequence[DataFile], column: str = COLUMN) -> tuple[float, float] | None:
    """Return the times of the oldest and the newest row, in s since 1970; None where the files do not tell.

    The files' statistics are asked; only where there are none, the column is read.

    Raises:
        RunError: a file cannot be read.
    """
    with ThreadPoolExecutor(max_workers=8) as pool:
        found = [span for spans in pool.map(lambda file: list(_spans(file.path, column)), files) for span in spans]
    return (min(first for first, _ in found), max(last for _, last in found)) if found else None


def _spans(path: str, column: str) -> Iterator[tuple[float, float]]:
    store, inner = filesystem(path)
    try:
        with pq.ParquetFile(inner, filesystem=store) as parquet:
            if column not in parquet.schema_arrow.names:
                return
            place = next(i for i in range(len(parquet.schema)) if parquet.schema.column(i).path == column)
            for group in range(parquet.num_row_groups):
                statistics = parquet.metadata.row_group(group).column(place).statistics
                if statistics is not None and statistics.has_min_max:
                    span = (statistics.min, statistics.max)
                else:
                    values = parquet.read_row_group(group, columns=[column]).column(column)
                    span = tuple(pc.min_max(values).as_py().values())
                if None not in span:
                    yield _seconds(span[0]), _seconds(span[1])
    except (OSError, pa.ArrowException) as error:
        msg = f"cannot read {path}: {' '.join(str(error).split())}"
        raise RunError(msg, "the file is damaged or gone; VACUUM may have taken it") from error


def _seconds(moment: Any) -> float:
    assert isinstance(moment, datetime)
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)).timestamp()
