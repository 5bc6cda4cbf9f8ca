"""Reads columns of a whole Delta table without Spark, batch by batch, without its deleted rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import dataset

from kbit_spark.errors import RunError


def scan(table: str, columns: Sequence[str], where: pc.Expression | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the newest version.

    Args:
        table: path or URI.
        columns: what to read; no partition columns.
        where: which rows; None for all.

    Raises:
        RunError: the table cannot be read, or has deleted rows inside its files.
    """
    try:
        delta = DeltaTable(table)
        if pa.RecordBatchReader.from_stream(delta.deletion_vectors()).read_all().num_rows:
            msg = f"{table} has deletion vectors, which a scan without Spark does not apply"
            raise RunError(msg, f"apply them first: REORG TABLE delta.`{table}` APPLY (PURGE)")
        # by path: deltalake's reader calls Python from Arrow's threads; one that still does at exit aborts the process
        files = delta.file_uris()
        if files:
            yield from dataset.dataset(files, format="parquet").to_batches(columns=list(columns), filter=where)
    except (DeltaError, pa.ArrowException, OSError) as error:
        msg = f"cannot read the table {table}: {' '.join(str(error).split())}"
        raise RunError(msg, "check the path and the permissions") from error
