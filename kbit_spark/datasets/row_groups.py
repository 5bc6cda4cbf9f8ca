"""Row groups of a table's Parquet files, by their footers. Deleted rows are no rows here: they are counted nowhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kbit_spark.errors import RunError
from kbit_spark.schemas.snapshot import DataFile
from kbit_spark.storage import filesystem

FILE_BUFFER_BYTES = 2**16
"""A local file is read in pieces of so many bytes, so that no lane holds a whole row group, compressed."""

KEPT_FOOTER_BYTES = 2**20
"""Bytes of the footers that are kept, as they are in the files; in memory one is up to some eight times as large."""


@dataclass(frozen=True)
class RowGroup:
    """One row group: its file, its index there, its rows, and the number of its first row in the file.

    Args:
        path: path or URI of the file.
        index: number of the row group in the file.
        rows: rows that are not deleted.
        first_row: number of its first row, deleted or not, in the file.
        kept: which of all its rows are not deleted, None for all.
        constants: values of integer partition columns.
    """

    path: str
    index: int
    rows: int
    first_row: int
    kept: NDArray[np.bool_] | None = None
    constants: Mapping[str, int] = field(default_factory=dict)


def list_row_groups(files: Sequence[DataFile]) -> list[RowGroup]:
    """Read the footers of `files` and return their non-empty row groups, in the order of the files.

    Raises:
        RunError: a file is missing, unreadable, or has another number of rows than the table says.
    """
    with ThreadPoolExecutor(max_workers=8) as pool:
        listed = pool.map(_row_groups_of, files)
        return [group for groups in listed for group in groups]


class Footers:
    """Opens files anew for each row group, and keeps the newest footer, others up to `KEPT_FOOTER_BYTES` in all."""

    def __init__(self) -> None:
        self._known: dict[str, pq.FileMetaData] = {}
        self._bytes = 0

    def open(self, path: str) -> Any:
        """Return the open file.

        Raises:
            RunError: it is missing or unreadable.
        """
        footer = self._forget(path) if path in self._known else None
        parquet = _open(path, footer)
        self._known[path] = parquet.metadata
        self._bytes += parquet.metadata.serialized_size
        while self._bytes > KEPT_FOOTER_BYTES and len(self._known) > 1:  # the newest is soon asked for again
            self._forget(next(iter(self._known)))  # the one that was not asked for longest
        return parquet

    def _forget(self, path: str) -> pq.FileMetaData:
        footer = self._known.pop(path)
        self._bytes -= footer.serialized_size
        return footer


def _row_groups_of(file: DataFile) -> list[RowGroup]:
    groups: list[RowGroup] = []
    deleted = file.deleted_rows()
    with _open(file.path) as parquet:
        total = parquet.metadata.num_rows
        if total != (file.rows if deleted is None else len(deleted)):
            msg = f"{file.path} holds {total} rows, but the table's log says {file.rows}"
            raise RunError(msg, "the file was changed behind the table's back; restore it or write the table anew")
        first_row = 0
        for index in range(parquet.metadata.num_row_groups):
            stored = parquet.metadata.row_group(index).num_rows
            kept = None if deleted is None else ~deleted[first_row : first_row + stored]
            if rows := stored if kept is None else int(kept.sum()):
                groups.append(RowGroup(file.path, index, rows, first_row, kept, file.constants))
            first_row += stored
    return groups


def _open(path: str, footer: pq.FileMetaData | None = None) -> Any:
    store, inner = filesystem(path)
    local = isinstance(store, pafs.LocalFileSystem)
    try:
        # From afar a row group is fetched at once: each request costs a round trip.
        buffer = FILE_BUFFER_BYTES if local else 0
        return pq.ParquetFile(inner, metadata=footer, filesystem=store, pre_buffer=not local, buffer_size=buffer)
    except (OSError, pa.ArrowException) as error:
        msg = f"cannot read {path}: {' '.join(str(error).split())}"
        raise RunError(msg, "the file is damaged or gone; VACUUM may have taken it") from error
