"""Reads rows of Parquet row groups in the order of a plan; memory holds a slice of one row group per reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kbit_spark.datasets.columns import binary_rows, class_labels
from kbit_spark.datasets.sharding import Segment
from kbit_spark.errors import RunError
from kbit_spark.schemas import DataFile, Tensor

SLICE_ROWS = 1_024
"""Rows decoded at once."""


@dataclass(frozen=True)
class Columns:
    """The two columns of an example."""

    input: str
    target: str
    tensor: Tensor
    classes: int


@dataclass(frozen=True)
class RowGroup:
    """One row group: its file, its index there, its rows, and the number of its first row in the file."""

    path: str
    index: int
    rows: int
    first_row: int


@dataclass(frozen=True)
class Rows:
    """Decoded rows: `inputs` uint8 of shape (rows, nbytes), `targets` int64 of shape (rows,)."""

    inputs: NDArray[np.uint8]
    targets: NDArray[np.int64]


def list_row_groups(files: Sequence[DataFile]) -> list[RowGroup]:
    """Read the footers of `files` and return their non-empty row groups, in the order of the files.

    Raises:
        RunError: a file is missing, unreadable, or has another number of rows than the table says.
    """
    with ThreadPoolExecutor(max_workers=8) as pool:
        listed = pool.map(_row_groups_of, files)
        return [group for groups in listed for group in groups]


class RowGroupReader:
    """Reads segments; consecutive segments of one row group are decoded in one pass."""

    def __init__(self, groups: Sequence[RowGroup], columns: Columns) -> None:
        self._groups = groups
        self._columns = columns
        self._group: int | None = None
        self._position = 0
        self._slices: Iterator[pa.RecordBatch] = iter(())
        self._rest: pa.RecordBatch | None = None

    def read(self, segments: Sequence[Segment]) -> Rows:
        """Return the rows of all segments, in order.

        Raises:
            RunError: an unreadable file, a wrong tensor length, a label out of range.
        """
        parts = [part for segment in segments for part in self._read(segment)]
        if len(parts) == 1:
            return parts[0]
        return Rows(np.concatenate([p.inputs for p in parts]), np.concatenate([p.targets for p in parts]))

    def _read(self, segment: Segment) -> Iterator[Rows]:
        group = self._groups[segment.group]
        if self._group != segment.group or self._position > segment.first:
            self._slices = _slices(group, (self._columns.input, self._columns.target))
            self._group, self._position, self._rest = segment.group, 0, None
        stop = segment.first + segment.rows
        while self._position < stop:
            batch = self._rest if self._rest is not None else self._next(group)
            skip = min(max(segment.first - self._position, 0), batch.num_rows)
            take = min(stop - self._position - skip, batch.num_rows - skip)
            if take > 0:
                yield self._decode(batch.slice(skip, take), group, self._position + skip)
            self._position += skip + take
            self._rest = batch.slice(skip + take) if skip + take < batch.num_rows else None

    def _next(self, group: RowGroup) -> pa.RecordBatch:
        batch = next(self._slices, None)
        if batch is None:
            msg = f"{group.path}: row group {group.index} ended before its {group.rows} rows"
            raise RunError(msg, "the file is damaged")
        return batch

    def _decode(self, batch: pa.RecordBatch, group: RowGroup, row: int) -> Rows:
        columns, first_row = self._columns, group.first_row + row
        inputs, targets = (batch.column(batch.schema.get_field_index(c)) for c in (columns.input, columns.target))
        return Rows(
            binary_rows(inputs, columns.tensor.nbytes, f"{group.path}: {columns.input}", first_row),
            class_labels(targets, columns.classes, f"{group.path}: {columns.target}", first_row),
        )


def _row_groups_of(file: DataFile) -> list[RowGroup]:
    groups: list[RowGroup] = []
    with _open(file.path) as parquet:
        total = parquet.metadata.num_rows
        first_row = 0
        for index in range(parquet.metadata.num_row_groups):
            rows = parquet.metadata.row_group(index).num_rows
            if rows:
                groups.append(RowGroup(file.path, index, rows, first_row))
            first_row += rows
    if total != file.rows:
        msg = f"{file.path} holds {total} rows, but the table's log says {file.rows}"
        raise RunError(msg, "the file was changed behind the table's back; restore it or write the table anew")
    return groups


def _slices(group: RowGroup, columns: tuple[str, str]) -> Iterator[pa.RecordBatch]:
    with _open(group.path) as parquet:
        if missing := [name for name in columns if name not in parquet.schema_arrow.names]:
            msg = f"{group.path} has no column {', '.join(missing)}"
            raise RunError(msg, "check data.input and data.target")
        try:
            # One thread: ranks share a machine, and decoding is far from being the bottleneck.
            yield from parquet.iter_batches(
                SLICE_ROWS, row_groups=[group.index], columns=list(columns), use_threads=False
            )
        except (OSError, pa.ArrowException) as error:
            msg = f"cannot read {group.path}: {' '.join(str(error).split())}"
            raise RunError(msg, "the file is damaged or gone; VACUUM may have taken it") from error


def _open(path: str) -> Any:
    try:
        if "://" not in path:
            return pq.ParquetFile(path)
        filesystem, inner = pafs.FileSystem.from_uri(path)
        return pq.ParquetFile(inner, filesystem=filesystem)
    except (OSError, pa.ArrowException) as error:
        msg = f"cannot read {path}: {' '.join(str(error).split())}"
        raise RunError(msg, "the file is damaged or gone; VACUUM may have taken it") from error
