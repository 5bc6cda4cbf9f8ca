"""Reads the rejected table without Spark, for people who ask where the bad records are and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import dataset

from kbit_spark.errors import RunError
from kbit_spark.schemas import Rejection
from kbit_spark.tables.scan import scan

_SHOWN_BYTES = 16
_Key = tuple[str, str | None, int | None]
COLUMNS = ("topic", "partition", "offset", "code", "reason", "position", "batch_id")


def read_rejections(table: str, topics: Collection[str], batches: Collection[int], most: int) -> list[Rejection]:
    """Return the bad records of some batches, in the order of their coordinates.

    More than `most` of them become one for each topic, code and reason, the most frequent first.

    Raises:
        RunError: the table cannot be read.
    """
    try:
        # by path: deltalake's reader calls Python from Arrow's threads; one that still does at exit aborts the process
        files = DeltaTable(table).file_uris()
        source = dataset.dataset(files, format="parquet")
        wanted = pc.field("topic").isin(list(topics)) & pc.field("batch_id").isin(list(batches))
        rows = source.to_table(columns=list(COLUMNS), filter=wanted) if files else None
    except (DeltaError, pa.ArrowException, OSError) as error:
        msg = f"cannot read the rejected table {table}: {' '.join(str(error).split())}"
        raise RunError(msg) from error
    if rows is None:
        return []
    rows = rows.sort_by([(name, "ascending") for name in ("topic", "partition", "offset")]).drop_columns("batch_id")
    if rows.num_rows <= most:
        return [Rejection(**row) for row in rows.to_pylist()]
    return _by_reason(rows)


@dataclass(frozen=True)
class LetterGroup:
    """Dead letters with one code, format and schema id: how many, and the first of them."""

    code: str
    format: str | None
    schema_id: int | None
    count: int
    samples: list[dict[str, Any]]
    """Columns of the first letters; the payload as its first bytes in hex."""


def group_letters(table: str, most: int) -> list[LetterGroup]:
    """Return all letters in groups, the largest first, each with at most `most` samples.

    Raises:
        RunError: the table is no rejected table, or cannot be read.
    """
    keys = ["code", "format", "schema_id"]
    counts: Counter[_Key] = Counter()
    samples: dict[_Key, list[dict[str, Any]]] = {}
    for batch in scan(table, "rejected", [*keys, "topic", "partition", "offset", "position", "reason", "payload"]):
        rows = pa.Table.from_batches([batch])
        rows = rows.append_column("row", pa.array(range(rows.num_rows), pa.int64()))
        groups = rows.group_by(keys, use_threads=False).aggregate([("row", "list")])
        for group in groups.to_pylist():
            key, found = (group["code"], group["format"], group["schema_id"]), group["row_list"]
            counts[key] += len(found)
            shown = samples.setdefault(key, [])
            wanted = found[: max(0, most - len(shown))]
            shown += map(_shown, rows.take(pa.array(wanted, pa.int64())).drop_columns([*keys, "row"]).to_pylist())
    return [
        LetterGroup(code, kind, schema_id, count, samples[code, kind, schema_id])
        for (code, kind, schema_id), count in counts.most_common()
    ]


def _shown(letter: dict[str, Any]) -> dict[str, Any]:
    payload = letter.pop("payload") or b""
    return {**letter, "payload_bytes": len(payload), "payload": payload[:_SHOWN_BYTES].hex()}


def _by_reason(rows: pa.Table) -> list[Rejection]:
    kept = ("partition", "offset", "position")
    grouped = rows.group_by(["topic", "code", "reason"], use_threads=False).aggregate(
        [*((name, "first", pc.ScalarAggregateOptions(skip_nulls=False)) for name in kept), ("offset", "count")]
    )
    names = {"offset_count": "count", **{f"{name}_first": name for name in kept}}
    grouped = grouped.rename_columns([names.get(name, name) for name in grouped.column_names])
    return [Rejection(**row) for row in grouped.sort_by([("count", "descending")]).to_pylist()]
