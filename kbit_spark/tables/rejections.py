"""Reads the rejected table without Spark, for people who ask where the bad records are and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kbit_spark.schemas.ledger import Rejection
from kbit_spark.tables.scan import scan

_SHOWN_BYTES = 16
_Key = tuple[str, str | None, int | None]
COLUMNS = ("topic", "partition", "offset", "code", "reason", "position", "batch_id")
_NAMES = ("stream_id", "epoch")


def read_rejections(
    table: str, stream_id: str, topics: Collection[str], batches: Collection[tuple[str | None, int]], most: int
) -> list[Rejection]:
    """Return the bad records of some batches, in the order of their coordinates.

    More than `most` of them become one for each topic, code and reason, the most frequent first.

    Args:
        table: the rejected table.
        stream_id: the stream whose batches they are; letters from before these named one may be of any.
        topics: what it reads.
        batches: by epoch, None where nobody knows it, and number.
        most: how many records are told one by one.

    Raises:
        RunError: the table cannot be read.
    """
    wanted = pc.field("topic").isin(list(topics)) & pc.field("batch_id").isin([batch_id for _, batch_id in batches])
    found = list(scan(table, "rejected", COLUMNS, wanted, late=_NAMES))
    if not found:
        return []
    rows = pa.Table.from_batches(found)
    own = [
        stream in (None, stream_id) and (epoch is None or not {(epoch, number), (None, number)}.isdisjoint(batches))
        for stream, epoch, number in zip(*(rows[name].to_pylist() for name in (*_NAMES, "batch_id")), strict=True)
    ]
    rows = rows.filter(pa.array(own, pa.bool_())).drop_columns(list(_NAMES))
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
