"""Resolve a table into a `Snapshot`: one version, its data files with rows, deleted rows and splits, its columns.

The Delta log is read with delta-rs, so neither Spark nor the data itself is touched.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.schema import ArrayType, PrimitiveType
from numpy.typing import NDArray

from kbit_spark.errors import RunError, UsageError
from kbit_spark.schemas.fields import SPLIT_COLUMN, SPLITS, DType, Tensor
from kbit_spark.schemas.snapshot import DataFile, Snapshot, StoredColumn, pack_rows
from kbit_spark.storage import is_uri
from kbit_spark.tables.log import kafka_ranges, removals
from kbit_spark.tables.retention import refuse_short_lived, retention_s

_ITEMS: dict[str, DType] = {
    "byte": "int8",
    "short": "int16",
    "integer": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
}


def resolve(table: str, version: int | None = None, longest_run_s: float = 0.0) -> Snapshot:
    """Return the snapshot of `table` (a path or URI) at `version` (None: the newest).

    Args:
        table: path or URI.
        version: the version, None for the newest.
        longest_run_s: how long the files must be safe from VACUUM.

    Raises:
        RunError: no Delta table, no such version, not partitioned by `_split`, no row counts in the file statistics,
            no rows at all, or files that VACUUM could delete too early.
    """
    delta, snapshot = read_version(table, version)
    if not any(file.rows for file in snapshot.files):
        msg = f"{snapshot.table} holds no rows at version {snapshot.version}"
        raise RunError(msg, "run the ingest job first")
    names = [action["path"] for action in _actions(delta)]
    removed = {} if version is None else removals(snapshot.table, snapshot.version, names)
    kept_s = retention_s(delta.metadata().configuration)
    refuse_short_lived(snapshot.table, snapshot.version, kept_s, removed, longest_run_s)
    kafka, complete = kafka_ranges(snapshot.table, snapshot.version)
    return snapshot.model_copy(update={"kafka": kafka, "kafka_complete": complete})


def read_version(table: str, version: int | None = None) -> tuple[DeltaTable, Snapshot]:
    """Return a table at `version` (None: the newest), and its snapshot without Kafka's offsets.

    Raises:
        RunError: no Delta table, no such version, not partitioned by `_split`, or no row counts in the statistics.
    """
    root = root_of(table)
    delta = _open(root, version)
    if SPLIT_COLUMN not in delta.metadata().partition_columns:
        msg = f"{root} is not partitioned by {SPLIT_COLUMN}, so it is no samples table"
        raise RunError(msg, "train on a table that the ingest job wrote")
    return delta, Snapshot(
        table=root,
        table_id=str(delta.metadata().id),
        version=delta.version(),
        files=_data_files(delta, root, _actions(delta)),
        tensors=_tensors(delta),
        arrays=_arrays(delta),
        columns=tuple(field.name for field in delta.schema().fields),
        stored=_stored(delta),
    )


def root_of(table: str) -> str:
    """Return a table's URI as it is, its local path in full."""
    return table if is_uri(table) else str(Path(table).absolute())


def with_shape(snapshot: Snapshot, column: str, shape: tuple[int, ...] | None) -> Snapshot:
    """Return the snapshot in which an array column is a tensor of `shape`; unchanged where no shape is given.

    Raises:
        UsageError: the column is a tensor of another shape by itself.
    """
    own = snapshot.tensors.get(column)
    if shape is None or column not in (*snapshot.tensors, *snapshot.arrays):
        return snapshot
    if own is not None and own.shape != shape:
        msg = f"data.input_shape={list(shape)}, but column {column!r} holds tensors of shape {list(own.shape)}"
        raise UsageError(msg, "leave data.input_shape out for a tensor column")
    tensor = own or Tensor(dtype=snapshot.arrays[column], shape=shape)
    return snapshot.model_copy(update={"tensors": {**snapshot.tensors, column: tensor}})


def require_columns(snapshot: Snapshot, input_column: str, target_column: str) -> Tensor:
    """Return the tensor of the column that feeds the model.

    Raises:
        UsageError: the column is no tensor of this table, or there is no column of labels.
    """
    if snapshot.columns and target_column not in snapshot.columns:
        nearest = difflib.get_close_matches(target_column, snapshot.columns, n=1, cutoff=0.5)
        msg = f"{snapshot.table} has no column {target_column!r}" + "".join(f"; did you mean {n!r}?" for n in nearest)
        raise UsageError(msg, f"set data.target to one of {', '.join(snapshot.columns)}")
    if input_column in snapshot.arrays and input_column not in snapshot.tensors:
        msg = f"column {input_column!r} of {snapshot.table} holds arrays of {snapshot.arrays[input_column]}"
        raise UsageError(msg, "tell their shape: data.input_shape=[...]")
    if input_column not in snapshot.tensors:
        known = ", ".join(sorted(snapshot.tensors)) or "none"
        msg = f"{snapshot.table} has no tensor column {input_column!r}; its tensor columns: {known}"
        raise UsageError(msg, "set data.input to one of them")
    return snapshot.tensors[input_column]


def _open(root: str, version: int | None) -> DeltaTable:
    try:
        return DeltaTable(root, version=version)
    except TableNotFoundError as error:
        msg = f"{root} is no Delta table"
        raise RunError(msg, "check data.table, or run the ingest job first") from error
    except (DeltaError, OSError, ValueError) as error:
        first = " ".join(str(error).split())
        if version is None:
            msg = f"cannot read the Delta table {root}: {first}"
            raise RunError(msg) from error
        msg = f"{root} has no version {version} that can still be read: {first}"
        raise RunError(msg, "leave data.version out to take the newest") from error


def _actions(delta: DeltaTable) -> list[dict[str, Any]]:
    """Return the files of the version; their paths are relative to the table, as they are on disk."""
    rows: list[dict[str, Any]] = pa.table(delta.get_add_actions(flatten=False)).to_pylist()
    return sorted(({**row, "path": unquote(row["path"])} for row in rows), key=lambda row: str(row["path"]))


def _data_files(delta: DeltaTable, root: str, actions: list[dict[str, Any]]) -> tuple[DataFile, ...]:
    deleted = _deleted_rows(delta)
    files = tuple(_data_file(root, action, deleted.pop(action["path"], None)) for action in actions)
    if deleted:
        msg = f"{root} deletes rows of files that it does not name: {', '.join(sorted(deleted)[:3])}"
        raise RunError(msg, "apply its deletion vectors first: REORG TABLE ... APPLY (PURGE)")
    return files


def _data_file(root: str, action: dict[str, Any], deleted: NDArray[np.bool_] | None) -> DataFile:
    path, rows, values = action["path"], action.get("num_records"), action["partition"]
    if rows is None:
        msg = f"{root}: no row count in the statistics of {path}"
        raise RunError(msg, "write the table with statistics (numRecords), or OPTIMIZE it")
    if (split := values.get(SPLIT_COLUMN)) not in SPLITS:
        msg = f"{root}: {path} is of the unknown split {split!r}; known: {', '.join(SPLITS)}"
        raise RunError(msg)
    return DataFile(
        path=full_path(root, path),
        rows=rows if deleted is None else rows - int(deleted.sum()),
        split=split,
        deleted=b"" if deleted is None else pack_rows(deleted),
        constants={name: value for name, value in values.items() if type(value) is int},
    )


def full_path(root: str, path: str) -> str:
    """Return the full path of a file that the log of the table at `root` names."""
    return path if is_uri(path) or path.startswith("/") else f"{root.rstrip('/')}/{path}"


def _deleted_rows(delta: DeltaTable) -> dict[str, NDArray[np.bool_]]:
    """Return the masks of deleted rows by the path of their file, relative to the table."""
    base = unquote(delta.table_uri).removeprefix("file://").rstrip("/") + "/"
    found: dict[str, NDArray[np.bool_]] = {}
    for batch in pa.RecordBatchReader.from_stream(delta.deletion_vectors()):
        kept = batch.column("selection_vector")
        for row, file in enumerate(batch.column("filepath").to_pylist()):
            path = unquote(file).removeprefix("file://").removeprefix(base)
            found[path] = ~kept[row].values.to_numpy(zero_copy_only=False).astype(np.bool_)
    return found


def _tensors(delta: DeltaTable) -> dict[str, Tensor]:
    found = {field.name: Tensor.from_metadata(field.metadata) for field in delta.schema().fields}
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def _arrays(delta: DeltaTable) -> dict[str, DType]:
    found: dict[str, DType] = {}
    for field in delta.schema().fields:
        element = field.type.element_type if isinstance(field.type, ArrayType) else None
        if isinstance(element, PrimitiveType) and element.type in _ITEMS:
            found[field.name] = _ITEMS[element.type]
    return found


def _stored(delta: DeltaTable) -> dict[str, StoredColumn]:
    """Return the columns' names inside the files; nothing for a table that stores them under their own names."""
    mode = delta.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mode == "none":
        return {}
    return {
        field.name: StoredColumn(
            name=field.metadata["delta.columnMapping.physicalName"],
            field_id=int(field.metadata["delta.columnMapping.id"]) if mode == "id" else None,
        )
        for field in delta.schema().fields
    }
