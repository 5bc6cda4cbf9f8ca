"""Arrow columns as arrays: views, slices, and what is refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbit_spark.datasets.columns import binary_rows, class_labels
from kbit_spark.errors import RunError


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
@given(rows=st.lists(st.binary(min_size=3, max_size=3), min_size=1, max_size=20), data=st.data())
def test_slices_of_binary_columns(kind: pa.DataType, rows: list[bytes], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows) - 1))
    view = binary_rows(pa.array(rows, kind).slice(start), 3, "f: image", range(9))
    assert [bytes(row) for row in view] == rows[start:]


def test_binary_rows_are_a_view() -> None:
    column = pa.array([b"ab", b"cd"], pa.binary())
    address = column.buffers()[2].address
    assert binary_rows(column, 2, "f: image", range(9)).__array_interface__["data"][0] == address


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([b"ab", b"c"], pa.binary()), "f: image, row 8: 1 bytes where the tensor has 2"),
        (pa.array([b"ab", None], pa.binary()), "f: image, row 8: null"),
        (pa.array(["ab"], pa.string()), "f: image is string, not binary"),
    ],
)
def test_wrong_tensors_are_refused(column: pa.Array, message: str) -> None:
    with pytest.raises(RunError, match=message):
        binary_rows(column, 2, "f: image", range(7, 99))


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
