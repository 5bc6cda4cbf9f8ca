"""Resolve a table into a `Snapshot`: one version, its data files with their rows and splits, its tensor columns.

The Delta log is read with delta-rs, so neither Spark nor the data itself is touched.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from kbit_spark.errors import RunError
from kbit_spark.schemas import SPLIT_COLUMN, SPLITS, DataFile, Snapshot, Tensor


def resolve(table: str, version: int | None = None) -> Snapshot:
    """Return the snapshot of `table` (a path or URI) at `version` (None: the newest).

    Raises:
        RunError: no Delta table, no such version, not partitioned by `_split`, no row counts in the file statistics,
            deletion vectors or column mapping in use, or no rows at all.
    """
    root = table if "://" in table else str(Path(table).absolute())
    delta = _open(root, version)
    _check_features(delta, root)
    files = tuple(_data_file(root, action) for action in _actions(delta))
    if not any(file.rows for file in files):
        msg = f"{root} holds no rows at version {delta.version()}"
        raise RunError(msg, "run the ingest job first")
    return Snapshot(
        table=root, table_id=str(delta.metadata().id), version=delta.version(), files=files, tensors=_tensors(delta)
    )


def require_columns(snapshot: Snapshot, input_column: str) -> Tensor:
    """Return the tensor of the column that feeds the model.

    Raises:
        RunError: the column is no tensor of this table.
    """
    if input_column not in snapshot.tensors:
        known = ", ".join(sorted(snapshot.tensors)) or "none"
        msg = f"{snapshot.table} has no tensor column {input_column!r}; its tensor columns: {known}"
        raise RunError(msg, "set data.input to one of them")
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


def _check_features(delta: DeltaTable, root: str) -> None:
    metadata = delta.metadata()
    if SPLIT_COLUMN not in metadata.partition_columns:
        msg = f"{root} is not partitioned by {SPLIT_COLUMN}, so it is no samples table"
        raise RunError(msg, "train on a table that the ingest job wrote")
    if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        msg = f"{root} uses column mapping, which training cannot read yet"
        raise RunError(msg, "rewrite the table without delta.columnMapping.mode")
    if "deletionVectors" in (delta.protocol().reader_features or []):
        msg = f"{root} allows deletion vectors, which training cannot read yet"
        raise RunError(msg, "ALTER TABLE ... DROP FEATURE deletionVectors, then train again")


def _actions(delta: DeltaTable) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.table(delta.get_add_actions(flatten=False)).to_pylist()
    return sorted(rows, key=lambda row: str(row["path"]))


def _data_file(root: str, action: dict[str, Any]) -> DataFile:
    path, rows, split = action["path"], action.get("num_records"), action["partition"].get(SPLIT_COLUMN)
    if rows is None:
        msg = f"{root}: no row count in the statistics of {path}"
        raise RunError(msg, "write the table with statistics (numRecords), or OPTIMIZE it")
    if split not in SPLITS:
        msg = f"{root}: {path} is of the unknown split {split!r}; known: {', '.join(SPLITS)}"
        raise RunError(msg)
    full = path if "://" in path or path.startswith("/") else f"{root.rstrip('/')}/{path}"
    return DataFile(path=full, rows=rows, split=split)


def _tensors(delta: DeltaTable) -> dict[str, Tensor]:
    found = {field.name: Tensor.from_metadata(field.metadata) for field in delta.schema().fields}
    return {name: tensor for name, tensor in found.items() if tensor is not None}
