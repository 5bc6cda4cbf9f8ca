"""Rows of a row group as arrays: views of the file's pages as far as those are plain, else as pyarrow decodes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
from numpy.typing import NDArray

from kbit_spark.datasets.columns import RowNumbers, class_labels, tensor_rows, whole_rows
from kbit_spark.datasets.pages import Chunk, page_rows
from kbit_spark.datasets.row_groups import Footers, RowGroup
from kbit_spark.errors import RunError
from kbit_spark.schemas.fields import Tensor
from kbit_spark.schemas.snapshot import StoredColumn
from kbit_spark.storage import filesystem

SLICE_BYTES = 2**20
"""Bytes of inputs decoded at once: what a core's cache holds beside the page that they come from."""

MAX_SLICE_ROWS = 2**16

LABEL_ROWS = 2**14
"""Labels that are decoded at once where inputs come from pages."""


@dataclass(frozen=True)
class Columns:
    """The two columns of an example, and how the files name them where they do it otherwise."""

    input: str
    target: str
    tensor: Tensor
    classes: int
    stored: Mapping[str, StoredColumn] = field(default_factory=dict)


@dataclass(frozen=True)
class Rows:
    """Decoded rows: `inputs` uint8 of shape (rows, nbytes), `targets` int64 of shape (rows,)."""

    inputs: NDArray[np.uint8]
    targets: NDArray[np.int64]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.targets)

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """Return all rows of at least one part; those of a single one are not copied."""
        if len(parts) == 1:
            return parts[0]
        inputs = np.concatenate([whole_rows(part.inputs) for part in parts])
        return cls(inputs.view(np.uint8).reshape(len(inputs), -1), np.concatenate([part.targets for part in parts]))

    def part(self, start: int, stop: int) -> Rows:
        """Return the rows `[start, stop)`, as views; there may be fewer."""
        return Rows(self.inputs[start:stop], self.targets[start:stop])


def rows_from(first: int, group: RowGroup, columns: Columns, footers: Footers) -> Iterator[Rows]:
    """Yield the rows of a row group from row `first` on: from its pages as far as they are plain, then by pyarrow."""
    with footers.open(group.path) as parquet:
        schema = parquet.schema_arrow  # made anew each time that it is asked for
        found = {name: _name_in(schema, name, columns) for name in (columns.input, columns.target)}
        if missing := [name for name, stored in found.items() if stored is None and name not in group.constants]:
            msg = f"{group.path} has no column {', '.join(missing)}"
            raise RunError(msg, "check data.input and data.target")
        try:
            for rows in _from_pages(first, parquet, group, columns, found):
                first += len(rows)
                yield rows
            if first < group.rows:
                yield from _from_arrow(first, parquet, group, columns, found)
        except (OSError, pa.ArrowException) as error:
            msg = f"cannot read {group.path}: {' '.join(str(error).split())}"
            raise RunError(msg, "the file is damaged or gone; VACUUM may have taken it") from error


def _from_pages(
    first: int, parquet: Any, group: RowGroup, columns: Columns, names: Mapping[str, str | None]
) -> Iterator[Rows]:
    """Yield inputs as views of pages, labels by pyarrow; nothing where the row group is not made for it."""
    store, inner = filesystem(group.path)
    inputs, target = names[columns.input], names[columns.target]
    if not isinstance(store, pafs.LocalFileSystem) or group.kept is not None or inputs is None or target is None:
        return
    chunk = Chunk.of(parquet, group.index, inputs, columns.tensor.nbytes)
    if chunk is None or chunk.rows != group.rows:
        return
    with store.open_input_file(inner) as file:
        labels, known = _labels(first, parquet, group, columns, target), np.empty(0, dtype=np.int64)
        for rows in page_rows(file, chunk, first):
            while len(rows):
                if not len(known) and (known := next(labels, known)).size == 0:
                    return  # there are fewer, of which pyarrow tells
                count = min(len(rows), len(known))
                yield Rows(rows[:count], known[:count])
                rows, known = rows[count:], known[count:]


def _labels(first: int, parquet: Any, group: RowGroup, columns: Columns, name: str) -> Iterator[NDArray[np.int64]]:
    position = 0
    for batch in parquet.iter_batches(LABEL_ROWS, row_groups=[group.index], columns=[name], use_threads=False):
        begin, position = max(first, position), position + batch.num_rows
        if begin < position:
            numbers = range(group.first_row + begin, group.first_row + position)
            column = batch.column(0)[-len(numbers) :]
            yield class_labels(column, columns.classes, f"{group.path}: {columns.target}", numbers)


def _from_arrow(
    first: int, parquet: Any, group: RowGroup, columns: Columns, names: Mapping[str, str | None]
) -> Iterator[Rows]:
    """Yield rows as pyarrow decodes them, from the row group's beginning, without those before `first`."""
    stored, position = [name for name in names.values() if name is not None], 0
    # One thread: ranks share a machine, and decoding is far from being the bottleneck.
    size = min(max(1, SLICE_BYTES // columns.tensor.nbytes), MAX_SLICE_ROWS)
    for batch in parquet.iter_batches(size, row_groups=[group.index], columns=stored, use_threads=False):
        found = _slice(batch, position, group, columns, names)
        position += batch.num_rows
        if first < len(found):
            yield _decode(found.part(first, len(found)), group, columns)
        first = max(0, first - len(found))


def _decode(rows: _Slice, group: RowGroup, columns: Columns) -> Rows:
    return Rows(
        tensor_rows(rows.inputs, columns.tensor, f"{group.path}: {columns.input}", rows.numbers),
        class_labels(rows.targets, columns.classes, f"{group.path}: {columns.target}", rows.numbers),
    )


def _slice(
    batch: pa.RecordBatch, position: int, group: RowGroup, columns: Columns, names: Mapping[str, str | None]
) -> _Slice:
    """Return the rows of a batch that begins `position` rows into the row group, without the deleted ones."""
    first = group.first_row + position
    numbers: RowNumbers = range(first, first + batch.num_rows)
    if group.kept is not None:
        kept = group.kept[position : position + batch.num_rows]
        if not kept.all():
            batch, numbers = batch.filter(pa.array(kept)), first + np.flatnonzero(kept)

    def values(column: str) -> Any:
        name = names[column]
        if name is None:
            return pa.repeat(pa.scalar(group.constants[column], pa.int64()), batch.num_rows)
        return batch.column(batch.schema.get_field_index(name))

    return _Slice(values(columns.input), values(columns.target), numbers)


def _name_in(schema: pa.Schema, column: str, columns: Columns) -> str | None:
    """Return the name of a column in a file, None where the file does not have it."""
    stored = columns.stored.get(column, StoredColumn(name=column))
    if stored.field_id is None:
        return stored.name if stored.name in schema.names else None
    wanted = str(stored.field_id).encode()
    return next((f.name for f in schema if (f.metadata or {}).get(b"PARQUET:field_id") == wanted), None)


@dataclass(frozen=True)
class _Slice:
    """Neighbouring rows that are not deleted: two Arrow arrays, and the rows' numbers in the file."""

    inputs: Any
    targets: Any
    numbers: RowNumbers

    def __len__(self) -> int:
        return len(self.numbers)

    def part(self, start: int, stop: int) -> _Slice:
        count = stop - start
        return _Slice(self.inputs.slice(start, count), self.targets.slice(start, count), self.numbers[start:stop])
