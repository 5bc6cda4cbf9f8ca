"""Rows from the pages of Parquet files, against pyarrow."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbit_spark.datasets.page_format import PageHeader, UnusualPageError, all_ones, decode_runs
from kbit_spark.datasets.pages import Chunk, page_rows
from kbit_spark.datasets.row_groups import Footers, RowGroup, list_row_groups
from kbit_spark.datasets.row_reader import RowGroupReader
from kbit_spark.datasets.rows import Columns
from kbit_spark.datasets.sharding import Segment
from kbit_spark.errors import RunError
from kbit_spark.schemas.fields import Tensor
from kbit_spark.schemas.snapshot import DataFile

SETTINGS = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def files(draw: st.DrawFn) -> tuple[pa.Table, dict[str, Any], int]:
    """A table of values of one length, how it is written, and that length."""
    nbytes = draw(st.sampled_from([1, 3, 8, 32, 100]))
    rows = draw(st.integers(1, 700))
    different = draw(st.sampled_from([1, 2, 7, 1_000]))
    random = np.random.default_rng(draw(st.integers(0, 1_000)))
    pool = [random.bytes(nbytes) for _ in range(different)]
    chosen = random.integers(0, different, rows)
    values: list[bytes | None] = [pool[i] for i in (np.sort(chosen) if draw(st.booleans()) else chosen)]
    if draw(st.integers(0, 9)) == 0:
        values[draw(st.integers(0, rows - 1))] = None
    if draw(st.integers(0, 9)) == 0:
        values[draw(st.integers(0, rows - 1))] = b"x" * (nbytes + 1)
    fixed = draw(st.booleans()) and all(v is None or len(v) == nbytes for v in values)
    nullable = None in values or draw(st.booleans())
    column = pa.array(values, pa.binary(nbytes) if fixed else pa.binary())
    schema = pa.schema([pa.field("x", column.type, nullable=nullable), pa.field("y", pa.int32(), nullable=False)])
    how = {
        "use_dictionary": draw(st.booleans()),
        "compression": draw(st.sampled_from(["none", "snappy", "zstd", "gzip"])),
        "data_page_size": draw(st.sampled_from([50, 500, 5_000, 1 << 20])),
        "dictionary_pagesize_limit": draw(st.sampled_from([100, 1_000, 1 << 20])),
        "data_page_version": draw(st.sampled_from(["1.0", "1.0", "2.0"])),
        "row_group_size": draw(st.sampled_from([100, 1_000])),
        "write_batch_size": 16,
    }
    return pa.table([column, pa.array(np.arange(rows) % 10, pa.int32())], schema=schema), how, nbytes


def from_pages(path: Path, group: int, nbytes: int, first: int) -> list[bytes]:
    """Return the rows that come from pages."""
    with pq.ParquetFile(path) as parquet, pafs.LocalFileSystem().open_input_file(str(path)) as file:
        chunk = Chunk.of(parquet, group, "x", nbytes)
        found = [] if chunk is None else list(page_rows(file, chunk, first))
        return [row.tobytes() for rows in found for row in rows]


@SETTINGS
@given(files(), st.data())
def test_rows_from_pages_are_pyarrows_and_end_early_where_they_are_not_plain(
    tmp_path: Path, made: tuple[pa.Table, dict[str, Any], int], data: st.DataObject
) -> None:
    table, how, nbytes = made
    pq.write_table(table, path := tmp_path / "x.parquet", **how)
    group = data.draw(st.integers(0, pq.ParquetFile(path).metadata.num_row_groups - 1))
    wanted = pq.ParquetFile(path).read_row_group(group)["x"].to_pylist()
    first = data.draw(st.integers(0, len(wanted) - 1))
    found = from_pages(path, group, nbytes, first)
    assert found == wanted[first : first + len(found)]
    plain = how["data_page_version"] == "1.0" and how["compression"] != "gzip"
    if plain and all(value is not None and len(value) == nbytes for value in wanted):
        assert len(found) == len(wanted) - first


def read(path: Path, nbytes: int, rows: int, segments: list[Segment] | None = None) -> np.ndarray:
    """Return the rows that the loader reads, with their labels behind them."""
    tensor = Tensor(dtype="uint8", shape=(nbytes,))
    groups = list_row_groups([DataFile(path=str(path), rows=rows, split="train")])
    reader = RowGroupReader(groups, Columns("x", "y", tensor, 10))
    found = reader.read(segments or [Segment(i, 0, group.rows) for i, group in enumerate(groups)])
    return np.concatenate([found.inputs, found.targets.astype(np.uint8)[:, None]], axis=1)


@SETTINGS
@given(files(), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99), st.integers(1, 60)), min_size=1, max_size=6))
def test_the_loader_reads_the_same_whatever_the_pages(
    tmp_path: Path, made: tuple[pa.Table, dict[str, Any], int], wanted: list[tuple[int, int, int]]
) -> None:
    table, how, nbytes = made
    pq.write_table(table, path := tmp_path / "x.parquet", **how)
    values, labels = table["x"].to_pylist(), table["y"].to_pylist()
    starts = np.cumsum(
        [0]
        + [
            pq.ParquetFile(path).metadata.row_group(g).num_rows
            for g in range(pq.ParquetFile(path).metadata.num_row_groups)
        ]
    )
    segments, rows = [], []
    for group, first, count in wanted:
        group %= len(starts) - 1
        size = int(starts[group + 1] - starts[group])
        first, count = first % size, min(count, size - first % size)
        segments.append(Segment(group, first, count))
        rows += range(int(starts[group]) + first, int(starts[group]) + first + count)
    if all(value is not None and len(value) == nbytes for value in values):
        found = read(path, nbytes, len(values), segments)
        assert [row.tobytes() for row in found] == [values[i] + bytes([labels[i]]) for i in rows]
    else:  # a wrong row near what is read may be refused or not, but is never read
        with contextlib.suppress(RunError):
            found = read(path, nbytes, len(values), segments)
            assert [row.tobytes() for row in found] == [values[i] + bytes([labels[i]]) for i in rows]


@SETTINGS
@given(files(), st.integers(0, 1 << 30), st.integers(1, 255))
def test_a_damaged_file_gives_pyarrows_rows_or_an_error(
    tmp_path: Path, made: tuple[pa.Table, dict[str, Any], int], place: int, change: int
) -> None:
    """Bytes of values themselves may change: neither reader can know."""
    table, how, nbytes = made
    pq.write_table(table, path := tmp_path / "x.parquet", **how)
    content = bytearray(path.read_bytes())
    begin = 4
    end = max(begin + 1, pq.ParquetFile(path).metadata.row_group(0).column(0).total_compressed_size)
    content[begin + place % (end - begin)] ^= change
    path.write_bytes(content)
    try:
        wanted = pq.ParquetFile(path).read_row_group(0)["x"].to_pylist()
    except (OSError, pa.ArrowException):
        wanted = None
    found = from_pages(path, 0, nbytes, 0)
    if wanted is not None:
        assert found == wanted[: len(found)]
    with contextlib.suppress(RunError):
        assert len(read(path, nbytes, len(table))) == len(table)


@pytest.mark.parametrize("known", [False, True], ids=["before it was opened", "behind a known footer"])
@pytest.mark.parametrize("kept", [0.3, 0.7, 0.95])
def test_a_file_that_was_cut_short_is_an_error(tmp_path: Path, kept: float, known: bool) -> None:
    rows, footers = 5_000, Footers()
    values = [np.random.default_rng(i).bytes(32) for i in range(rows)]
    table = pa.table({"y": pa.array([1] * rows, pa.int32()), "x": pa.array(values, pa.binary())})  # labels are not cut
    pq.write_table(table, path := tmp_path / "x.parquet", use_dictionary=False, data_page_size=1_000)
    if known:
        footers.open(str(path)).close()
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    columns = Columns("x", "y", Tensor(dtype="uint8", shape=(32,)), 10)
    reader = RowGroupReader([RowGroup(str(path), 0, rows, 0)], columns, footers)
    found: list[bytes] = []
    with pytest.raises(RunError, match=r"cannot read .*x\.parquet"):
        for part in reader.parts([Segment(0, 0, rows)]):
            found += (row.tobytes() for row in part.inputs)
    assert bool(found) == known
    assert found == values[: len(found)]


@given(st.integers(1, 25), st.lists(st.integers(0, 2**25 - 1), min_size=1, max_size=100))
def test_packed_runs_are_read_as_they_are_written(width: int, numbers: list[int]) -> None:
    numbers = [number & ((1 << width) - 1) for number in numbers]
    padded = numbers + [0] * (-len(numbers) % 8)
    whole = sum(number << (width * i) for i, number in enumerate(padded))
    groups = len(padded) // 8
    head = (groups << 1 | 1).to_bytes(1, "little")
    data = head + whole.to_bytes(groups * width, "little")
    assert decode_runs(data, width, len(numbers)).tolist() == numbers
    with pytest.raises(UnusualPageError):
        decode_runs(data[:-1], width, len(numbers))


@pytest.mark.parametrize("width", range(1, 26))
def test_runs_of_one_number_are_read_without_a_packed_one(width: int) -> None:
    number = (1 << width) - 1
    data = b"".join((n << 1).to_bytes(1, "little") + number.to_bytes(-(-width // 8), "little") for n in (5, 60))
    assert decode_runs(data, width, 40).tolist() == [number] * 40
    assert decode_runs(data, width, 65).tolist() == [number] * 65
    with pytest.raises(UnusualPageError):
        decode_runs(data, width, 66)


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=5), st.data())
def test_levels_are_all_ones_or_not(runs: list[tuple[int, bool]], data: st.DataObject) -> None:
    levels = b"".join(bytes([length << 1, one]) for length, one in runs)
    numbers = [one for length, one in runs for _ in range(length)]
    count = data.draw(st.integers(1, len(numbers)))
    assert all_ones(levels, count) == all(numbers[:count])
    with pytest.raises(UnusualPageError):
        all_ones(levels, len(numbers) + 1)


@given(st.binary(max_size=60))
def test_no_bytes_break_the_parsers(data: bytes) -> None:
    with contextlib.suppress(UnusualPageError):
        PageHeader.parse(data)
    with contextlib.suppress(UnusualPageError):
        all_ones(data, 50)
