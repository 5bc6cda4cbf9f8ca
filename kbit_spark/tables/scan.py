"""Opens Delta tables without Spark, and reads columns of a whole one, batch by batch, without its deleted rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow import dataset

from kbit_spark.errors import RunError

Kind = Literal["samples", "rejected"]
"""What a table holds, by its key in the section `tables` of a stream's configuration."""


def open_table(table: str, kind: Kind, columns: Sequence[str] = ()) -> DeltaTable:
    """Return the newest version of a table that has these columns.

    Args:
        table: path or URI.
        kind: which table it should be.
        columns: what it must have to be one.

    Raises:
        RunError: it is none of this kind, or cannot be read.
    """
    way_out = f"name the one that tables.{kind} of a stream's configuration names, once the ingest job has run"
    try:
        delta = DeltaTable(table)
        names = {field.name for field in delta.schema().fields}
    except (DeltaError, OSError, ValueError) as error:
        if isinstance(error, TableNotFoundError) or Path(table).is_file():
            msg = f"{table} is no Delta table"
            raise RunError(msg, way_out) from error
        msg = f"cannot read the table {table}: {' '.join(str(error).split())}"
        raise RunError(msg, "check the path and the permissions") from error
    if missing := [name for name in columns if name not in names]:
        msg = f"{table} is no {kind} table: it has no column {missing[0]}"
        raise RunError(msg, way_out)
    return delta


def scan(
    table: str, kind: Kind, columns: Sequence[str], where: pc.Expression | None = None, *, late: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the newest version.

    Args:
        table: path or URI.
        kind: which table it should be.
        columns: what to read; no partition columns.
        where: which rows; None for all.
        late: columns of text to read besides, null where the table, or a file from before it had them, lacks them.

    Raises:
        RunError: the table is none of this kind, cannot be read, or has deleted rows inside its files.
    """
    delta = open_table(table, kind, columns)
    try:
        if pa.RecordBatchReader.from_stream(delta.deletion_vectors()).read_all().num_rows:
            msg = f"{table} has deletion vectors, which a scan without Spark does not apply"
            raise RunError(msg, f"apply them first: REORG TABLE delta.`{table}` APPLY (PURGE)")
        # by path: deltalake's reader calls Python from Arrow's threads; one that still does at exit aborts the process
        files = delta.file_uris()
        if files:
            rows = dataset.dataset(files, format="parquet")
            if lacking := [pa.field(name, pa.string()) for name in late if name not in rows.schema.names]:
                rows = rows.replace_schema(pa.schema([*rows.schema, *lacking]))  # it is that of the first file
            yield from rows.to_batches(columns=[*columns, *late], filter=where)
    except (DeltaError, pa.ArrowException, OSError) as error:
        msg = f"cannot read the table {table}: {' '.join(str(error).split())}"
        raise RunError(msg, "check the path and the permissions") from error
