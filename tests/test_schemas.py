from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kbit_spark.schemas.fields import MAX_TENSOR_BYTES, FieldSpec, Tensor
from kbit_spark.schemas.ledger import LedgerEntry, OffsetRange, merge_ranges
from kbit_spark.schemas.snapshot import DataFile, Snapshot, pack_rows, unpack_rows

DTYPES = st.sampled_from(["uint8", "int8", "int16", "int32", "int64", "float32", "float64"])
SHAPES = st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple)
TENSORS = st.builds(Tensor, dtype=DTYPES, shape=SHAPES)
COUNTS = st.integers(0, 10_000)
NAMES = st.text(min_size=1, max_size=20)


@st.composite
def entries(draw: st.DrawFn) -> LedgerEntry:
    """Entries whose offsets all went somewhere."""
    counts = [draw(COUNTS) for _ in range(4)]
    cuts = sorted(draw(st.lists(st.integers(0, sum(counts)), max_size=4)))
    edges = [0, *cuts, sum(counts)]
    base = draw(st.integers(0, 2**40))
    ranges = tuple(
        OffsetRange(topic=draw(NAMES), partition=number, start=base, end=base + high - low)
        for number, (low, high) in enumerate(pairwise(edges))
    )
    good, bad, tombstones, gaps = counts
    return LedgerEntry(
        stream_id=draw(NAMES),
        epoch=draw(NAMES),
        batch_id=draw(st.integers(0, 2**31)),
        ranges=ranges,
        good=good,
        bad=bad,
        tombstones=tombstones,
        gaps=gaps,
    )


@given(TENSORS)
def test_a_tensor_has_the_bytes_that_numpy_gives_it(tensor: Tensor):
    array = np.zeros(tensor.shape, tensor.dtype)
    assert (tensor.items, tensor.nbytes) == (array.size, array.nbytes)


@given(DTYPES, st.integers(-3, 3))
def test_a_tensor_fits_into_one_array_of_the_jvm(dtype: str, more: int) -> None:
    item = np.dtype(dtype).itemsize
    items = MAX_TENSOR_BYTES // item + more
    if items * item <= MAX_TENSOR_BYTES:
        assert Tensor(dtype=dtype, shape=(items,)).nbytes <= MAX_TENSOR_BYTES  # type: ignore[arg-type]
    else:
        with pytest.raises(ValidationError, match="more than 2,147,483,647"):
            Tensor(dtype=dtype, shape=(items,))  # type: ignore[arg-type]


@given(TENSORS)
def test_tensor_metadata_round_trip(tensor: Tensor):
    metadata = tensor.to_metadata()
    assert Tensor.from_metadata(metadata) == tensor
    assert Tensor.from_metadata(json.loads(json.dumps(metadata))) == tensor
    assert Tensor.from_metadata({**metadata, "kbit.shape": json.dumps(metadata["kbit.shape"])}) == tensor


def test_a_column_without_metadata_is_no_tensor():
    assert Tensor.from_metadata({}) is None
    assert Tensor.from_metadata({"comment": "x"}) is None


@given(DTYPES, st.lists(st.integers(-3, 3), max_size=3))
def test_sizes_are_positive(dtype: str, shape: list[int]):
    if shape and min(shape) >= 1:
        assert Tensor(dtype=dtype, shape=tuple(shape)).items >= 1  # type: ignore[arg-type]
    else:
        with pytest.raises(ValidationError):
            Tensor(dtype=dtype, shape=tuple(shape))  # type: ignore[arg-type]


@given(entries())
def test_ledger_entry_round_trip(entry: LedgerEntry):
    assert LedgerEntry.from_metadata(entry.to_metadata()) == entry
    assert sum(r.span for r in entry.ranges) == entry.good + entry.bad + entry.tombstones + entry.gaps


@given(entries(), st.sampled_from(["good", "bad", "tombstones", "gaps"]), st.integers(-5, 5).filter(bool))
def test_an_entry_that_loses_or_invents_a_record_is_refused(entry: LedgerEntry, count: str, by: int):
    changed = {**entry.model_dump(), count: getattr(entry, count) + by}
    with pytest.raises(ValidationError, match="offsets, but good="):
        LedgerEntry.model_validate(changed)


def test_a_negative_count_cannot_hide_in_a_balanced_entry():
    ranges = (OffsetRange(topic="t", partition=0, start=0, end=2),)
    with pytest.raises(ValidationError, match="gaps=-1"):
        LedgerEntry(stream_id="s", epoch="e", batch_id=0, ranges=ranges, good=3, bad=0, tombstones=0, gaps=-1)


@pytest.mark.parametrize(
    "text", [None, "", "null", "not json", "[1]", '"x"', "3", "{}", '{"kbit": 1}', '{"kbit": {"other": 1}}']
)
def test_a_commit_of_someone_else_holds_no_entry(text: str | None):
    assert LedgerEntry.from_metadata(text) is None


@given(st.text())
def test_any_user_metadata_can_be_read(text: str):
    LedgerEntry.from_metadata(text)


def test_a_field_is_of_one_kind():
    assert FieldSpec(name="a", type="array<int>").tensor is None
    for kind in ({}, {"type": "int", "tensor": Tensor(dtype="uint8", shape=(1,))}):
        with pytest.raises(ValidationError, match="either a type or a tensor"):
            FieldSpec(name="a", **kind)  # type: ignore[arg-type]
    with pytest.raises(ValidationError):
        FieldSpec(name="_split", type="int")  # names that begin so are the table's own


@given(st.lists(st.tuples(NAMES, COUNTS, st.sampled_from(["train", "validation", "test"])), max_size=12))
def test_a_snapshot_counts_each_file_once_and_in_a_stable_order(rows: list[tuple[str, int, str]]):
    files = tuple(DataFile(path=path, rows=count, split=split) for path, count, split in rows)  # type: ignore[arg-type]
    there = Snapshot(table="/t", table_id="i", version=3, files=files, tensors={})
    back = there.model_copy(update={"files": files[::-1]})
    for split in ("train", "validation", "test"):
        assert sum(f.rows for f in there.of_split(split)) == there.rows(split)
        assert [f.path for f in there.of_split(split)] == [f.path for f in back.of_split(split)]
    assert sum(there.rows(split) for split in ("train", "validation", "test")) == sum(f.rows for f in files)


RANGES = st.builds(
    lambda topic, partition, start, span: OffsetRange(topic=topic, partition=partition, start=start, end=start + span),
    st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 30), st.integers(0, 9),
)  # fmt: skip


@given(st.lists(RANGES, max_size=12))
def test_merged_ranges_hold_the_same_offsets_in_the_fewest_pieces(ranges: list[OffsetRange]) -> None:
    def offsets(of: tuple[OffsetRange, ...] | list[OffsetRange]) -> set[tuple[str, int, int]]:
        return {(r.topic, r.partition, offset) for r in of for offset in range(r.start, r.end)}

    merged = merge_ranges(ranges)
    assert offsets(merged) == offsets(ranges)
    for left, right in pairwise(merged):
        assert (left.topic, left.partition, left.end) < (right.topic, right.partition, right.start)


@given(st.lists(st.booleans(), max_size=70))
def test_packed_rows_come_back(mask: list[bool]) -> None:
    assert unpack_rows(pack_rows(np.array(mask, dtype=np.bool_))).tolist() == mask
