"""Arrow columns as arrays: views, slices, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbit_spark.datasets.columns import class_labels, tensor_rows
from kbit_spark.errors import RunError
from kbit_spark.schemas.fields import Tensor


def tensor(items: int, dtype: str = "uint8") -> Tensor:
    return Tensor.model_validate({"dtype": dtype, "shape": [items]})


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(3)])
@given(rows=st.lists(st.binary(min_size=3, max_size=3), min_size=1, max_size=20), data=st.data())
def test_slices_of_binary_columns(kind: pa.DataType, rows: list[bytes], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows) - 1))
    view = tensor_rows(pa.array(rows, kind).slice(start), tensor(3), "f: image", range(9))
    assert [bytes(row) for row in view] == rows[start:]


NUMBERS = {"int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(),
           "uint8": pa.uint8(), "float32": pa.float32(), "float64": pa.float64()}  # fmt: skip


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("make", [pa.list_, pa.large_list, lambda item: pa.list_(item, 2)])
@given(rows=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=20), data=st.data())
def test_slices_of_list_columns(dtype: str, make: Any, rows: list[tuple[int, int]], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows) - 1))
    stop = data.draw(st.integers(start + 1, len(rows)))
    column = pa.array(rows, make(NUMBERS[dtype])).slice(start, stop - start)
    view = tensor_rows(column, tensor(2, dtype), "f: image", range(20))
    assert view.shape == (stop - start, 2 * np.dtype(dtype).itemsize)
    assert [tuple(row) for row in view.view(dtype).tolist()] == rows[start:stop]
    assert np.shares_memory(view, np.frombuffer(column.values.buffers()[1], dtype=np.uint8))


def test_binary_rows_are_a_view() -> None:
    column = pa.array([b"ab", b"cd"], pa.binary())
    address = column.buffers()[2].address
    assert tensor_rows(column, tensor(2), "f: image", range(9)).__array_interface__["data"][0] == address


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([b"ab", b"c"], pa.binary()), "f: image, row 8: 1 bytes where the tensor has 2"),
        (pa.array([b"ab", None], pa.binary()), "f: image, row 8: null"),
        (pa.array([b"abc"], pa.binary(3)), "f: image, row 7: 3 bytes where the tensor has 2"),
        (pa.array(["ab"], pa.string()), "f: image is string, neither binary nor a list"),
        (pa.array([[1, 2], [3]], pa.list_(pa.uint8())), "f: image, row 8: 1 items where the tensor has 2"),
        (pa.array([[1, 2], [3, None]], pa.list_(pa.uint8())), "f: image, row 8: a null inside the list"),
        (pa.array([[1, 2], None], pa.list_(pa.uint8(), 2)), "f: image, row 8: null"),
        (pa.array([[1, 2]], pa.list_(pa.float32())), "f: image holds lists of float, not of uint8"),
    ],
)
def test_wrong_tensors_are_refused(column: pa.Array, message: str) -> None:
    with pytest.raises(RunError, match=message):
        tensor_rows(column, tensor(2), "f: image", range(7, 99))


def test_no_rows_are_no_tensors() -> None:
    for kind in (pa.binary(), pa.list_(pa.float32()), pa.list_(pa.float32(), 2)):
        assert tensor_rows(pa.array([], kind), tensor(2, "float32"), "f: image", range(0)).shape == (0, 8)


def test_labels() -> None:
    labels = class_labels(pa.array([0, 2, 1], pa.int8()).slice(1), 3, "f: label", range(9))
    assert labels.tolist() == [2, 1]
    assert labels.dtype == np.int64


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([0, 3]), r"row 6: label 3 is out of range \[0, 3\)"),
        (pa.array([-1]), "row 5: label -1 is out of range"),
        (pa.array([0, None], pa.int32()), "row 6: null"),
        (pa.array([0.5]), "is double, not an integer"),
    ],
)
def test_wrong_labels_are_refused(column: pa.Array, message: str) -> None:
    with pytest.raises(RunError, match=message):
        class_labels(column, 3, "f: label", np.arange(5, 99))
