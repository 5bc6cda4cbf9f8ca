"""Arrow columns as arrays, without a Python object per row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from numpy.typing import NDArray

from kbit_spark.errors import RunError

RowNumbers = Sequence[int] | NDArray[np.int64]
"""The number in the file of each row of a column, for errors."""


def binary_rows(column: Any, nbytes: int, place: str, numbers: RowNumbers) -> NDArray[np.uint8]:
    """View a BINARY column as an array of shape (rows, nbytes); no bytes are copied.

    Args:
        column: an Arrow array of type binary or large_binary.
        nbytes: bytes that each value must have.
        place: file and column, for the error.
        numbers: the rows' numbers in the file, for the error.

    Raises:
        RunError: a null, or a value of another length.
    """
    if not (pat.is_binary(column.type) or pat.is_large_binary(column.type)):
        msg = f"{place} is {column.type}, not binary"
        raise RunError(msg, "data.input must name a tensor column")
    _refuse_nulls(column, place, numbers)
    _, offsets_buffer, values_buffer = column.buffers()
    width = np.int64 if pat.is_large_binary(column.type) else np.int32
    offsets = np.frombuffer(offsets_buffer, dtype=width)[column.offset : column.offset + len(column) + 1]
    lengths = np.diff(offsets)
    if (wrong := np.flatnonzero(lengths != nbytes)).size:
        row = int(wrong[0])
        msg = f"{place}, row {numbers[row]}: {int(lengths[row])} bytes where the tensor has {nbytes}"
        raise RunError(msg, "the column's metadata and its values disagree")
    values = np.frombuffer(values_buffer, dtype=np.uint8)[int(offsets[0]) : int(offsets[-1])]
    return values.reshape(len(column), nbytes)


def class_labels(column: Any, classes: int, place: str, numbers: RowNumbers) -> NDArray[np.int64]:
    """Return an integer column as int64 labels in [0, classes).

    Raises:
        RunError: the column holds no integers, a null, or a label out of range; it names file and row.
    """
    if not pat.is_integer(column.type):
        msg = f"{place} is {column.type}, not an integer"
        raise RunError(msg, "data.target must name an integer column")
    _refuse_nulls(column, place, numbers)
    labels: NDArray[np.int64] = column.to_numpy(zero_copy_only=False).astype(np.int64)
    if (wrong := np.flatnonzero((labels < 0) | (labels >= classes))).size:
        row = int(wrong[0])
        msg = f"{place}, row {numbers[row]}: label {int(labels[row])} is out of range [0, {classes})"
        raise RunError(msg, "set data.classes, or clean the table")
    return labels


def _refuse_nulls(column: pa.Array, place: str, numbers: RowNumbers) -> None:
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        msg = f"{place}, row {numbers[row]}: null"
        raise RunError(msg, "train on rows where input and target are present")
