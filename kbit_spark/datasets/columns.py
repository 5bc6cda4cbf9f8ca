"""Arrow columns as arrays, without a Python object per row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from numpy.typing import NDArray

from kbit_spark.errors import RunError
from kbit_spark.schemas.fields import Tensor

_ARROW_NAMES = {"float32": "float", "float64": "double"}

RowNumbers = Sequence[int] | NDArray[np.int64]
"""The number in the file of each row of a column, for errors."""


def tensor_rows(column: Any, tensor: Tensor, place: str, numbers: RowNumbers) -> NDArray[np.uint8]:
    """View a column of binary values or of lists of numbers as an array of shape (rows, bytes of a tensor).

    No bytes are copied.

    Args:
        column: an Arrow array; lists must hold the tensor's dtype.
        tensor: what each value must be.
        place: file and column, for the error.
        numbers: the rows' numbers in the file, for the error.

    Raises:
        RunError: another type, a null, or a value of another length; it names file and row.
    """
    kind = column.type
    lists = pat.is_list(kind) or pat.is_large_list(kind) or pat.is_fixed_size_list(kind)
    if lists and str(kind.value_type) != _ARROW_NAMES.get(tensor.dtype, tensor.dtype):
        msg = f"{place} holds lists of {kind.value_type}, not of {tensor.dtype}"
        raise RunError(msg, "the file was written with another type; write the table anew")
    if not (lists or pat.is_binary(kind) or pat.is_large_binary(kind) or pat.is_fixed_size_binary(kind)):
        msg = f"{place} is {kind}, neither binary nor a list of numbers"
        raise RunError(msg, "data.input must name a tensor column or a column of numeric arrays")
    _refuse_nulls(column, place, numbers)
    item_bytes, unit = (tensor.nbytes // tensor.items, "items") if lists else (1, "bytes")
    first, wrong = _first_value(column, tensor.nbytes // item_bytes)
    if wrong is not None:
        row, length = wrong
        msg = f"{place}, row {numbers[row]}: {length} {unit} where the tensor has {tensor.nbytes // item_bytes}"
        raise RunError(msg, "the column's metadata and its values disagree")
    buffer = _values(column, place, numbers, tensor.items) if lists else column.buffers()[-1]
    if buffer is None:  # no rows
        return np.empty((len(column), tensor.nbytes), dtype=np.uint8)
    start = first * item_bytes
    values = np.frombuffer(buffer, dtype=np.uint8)[start : start + len(column) * tensor.nbytes]
    return values.reshape(len(column), tensor.nbytes)


def whole_rows(rows: NDArray[np.uint8]) -> NDArray[Any]:
    """View rows, shape (..., bytes of a row), as items of shape (...), which numpy moves several times as fast."""
    return rows.view(np.dtype((np.void, rows.shape[-1])))[..., 0]


def _first_value(column: Any, length: int) -> tuple[int, tuple[int, int] | None]:
    """Return where the column's first value begins in its buffer, and the first row of another length, if any."""
    kind = column.type
    if pat.is_fixed_size_list(kind) or pat.is_fixed_size_binary(kind):
        found = kind.list_size if pat.is_fixed_size_list(kind) else kind.byte_width
        return column.offset * found, (0, found) if found != length and len(column) else None
    width = np.int64 if pat.is_large_list(kind) or pat.is_large_binary(kind) else np.int32
    if not len(column):
        return 0, None
    offsets = np.frombuffer(column.buffers()[1], dtype=width)[column.offset : column.offset + len(column) + 1]
    lengths = np.diff(offsets)
    wrong = np.flatnonzero(lengths != length)
    return int(offsets[0]), (int(wrong[0]), int(lengths[wrong[0]])) if wrong.size else None


def _values(column: Any, place: str, numbers: RowNumbers, items: int) -> Any:
    """Return the buffer of the numbers inside lists, counted from the first item of `column.values`."""
    inside = column.flatten()
    if inside.null_count:
        row = int(np.flatnonzero(inside.is_null().to_numpy(zero_copy_only=False))[0]) // items
        msg = f"{place}, row {numbers[row]}: a null inside the list"
        raise RunError(msg, "train on rows where input and target are present")
    values = column.values
    buffer = values.buffers()[1]
    return buffer if buffer is None else buffer.slice(values.offset * values.type.bit_width // 8)


def class_labels(column: Any, classes: int, place: str, numbers: RowNumbers) -> NDArray[np.int64]:
    """Return an integer column as int64 labels in [0, classes).

    Raises:
        RunError: the column holds no integers, a null, or a label out of range; it names file and row.
    """
    if not pat.is_integer(column.type):
        msg = f"{place} is {column.type}, not an integer"
        raise RunError(msg, "data.target must name an integer column")
    _refuse_nulls(column, place, numbers)
    labels: NDArray[np.integer[Any]] = column.to_numpy(zero_copy_only=False)
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        row = int(np.flatnonzero((labels < 0) | (labels >= classes))[0])
        msg = f"{place}, row {numbers[row]}: label {int(labels[row])} is out of range [0, {classes})"
        raise RunError(msg, "set data.classes, or clean the table")
    return labels.astype(np.int64)


def _refuse_nulls(column: pa.Array, place: str, numbers: RowNumbers) -> None:
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        msg = f"{place}, row {numbers[row]}: null"
        raise RunError(msg, "train on rows where input and target are present")
