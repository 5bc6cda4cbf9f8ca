"""Batches from real Delta files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

import kbit_spark.datasets.batches as batches_module
import kbit_spark.datasets.resident as resident_module
import kbit_spark.datasets.row_groups as row_groups_module
import kbit_spark.datasets.rows as rows_module
from kbit_spark.datasets.batches import Batch, Source, evaluation_batches, training_batches
from kbit_spark.datasets.device import on_device
from kbit_spark.datasets.memory import Recycled
from kbit_spark.datasets.prefetch import Prefetch
from kbit_spark.datasets.resident import ResidentRows, resident_rows
from kbit_spark.datasets.row_groups import Footers, list_row_groups
from kbit_spark.datasets.row_reader import RowGroupReader
from kbit_spark.datasets.rows import Columns, Rows
from kbit_spark.datasets.sharding import EpochPlan, Segment, plan_epoch
from kbit_spark.datasets.transforms import normalize
from kbit_spark.errors import RunError, UsageError
from kbit_spark.schemas.fields import Tensor
from kbit_spark.schemas.snapshot import Snapshot
from kbit_spark.tables.snapshot import require_columns, resolve, with_shape
from tests.fixtures.operations import Operations
from tests.fixtures.samples import IMAGE, write_samples

COLUMNS = Columns("image", "label", IMAGE, 10)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    table = tmp_path_factory.mktemp("batches") / "samples"
    for seed in range(3):
        write_samples(table, train=300, validation=50, test=7, row_group=64, seed=seed)
    return resolve(str(table))


def source(snapshot: Snapshot, rank: int = 0, world_size: int = 1, split: str = "train") -> Source:
    groups = list_row_groups(snapshot.of_split(split))  # type: ignore[arg-type]
    return Source(groups, COLUMNS, rank, world_size)


def planned(data: Source, global_batch: int = 50, window_rows: int = 100) -> Callable[[int], EpochPlan]:
    rows = [group.rows for group in data.groups]
    return lambda epoch: plan_epoch(rows, seed=1, epoch=epoch, global_batch=global_batch, window_rows=window_rows)


@contextmanager
def kept(data: Source, plans: Callable[[int], EpochPlan], device: torch.device = CPU) -> Iterator[ResidentRows]:
    found = resident_rows(data, plans, device)
    assert found is not None
    with closing(found):
        yield found


def assert_equal(left: Iterable[Batch], right: Iterable[Batch]) -> None:
    for one, other in zip(left, right, strict=True):
        assert one.inputs.dtype == other.inputs.dtype
        assert torch.equal(one.inputs, other.inputs)
        assert torch.equal(one.targets, other.targets)


def keys(batches: list[torch.Tensor]) -> list[bytes]:
    return [row.numpy().tobytes() for batch in batches for row in batch]


def test_an_epoch_brings_every_row_once_with_its_label(snapshot: Snapshot) -> None:
    data = source(snapshot)
    plan = plan_epoch([g.rows for g in data.groups], seed=1, epoch=2, global_batch=50, window_rows=200)
    batches = list(training_batches(data, plan))
    assert len(batches) == 18
    truth = {}
    for file in snapshot.of_split("train"):
        table = pq.ParquetFile(file.path).read(columns=["image", "label"])
        truth |= dict(zip(table["image"].to_pylist(), table["label"].to_pylist(), strict=True))
    seen = keys([batch.inputs for batch in batches])
    assert sorted(seen) == sorted(truth)
    labels = torch.cat([batch.targets for batch in batches]).tolist()
    assert labels == [truth[key] for key in seen]
    assert batches[0].inputs.shape == (50, 28, 28)
    assert batches[0].inputs.dtype == torch.uint8


def test_ranks_together_read_what_one_rank_reads_and_resume_in_the_middle(snapshot: Snapshot) -> None:
    alone = source(snapshot)
    plan = plan_epoch([g.rows for g in alone.groups], seed=1, epoch=0, global_batch=30, window_rows=100)
    whole = [batch.inputs for batch in training_batches(alone, plan)]
    parts = [list(training_batches(source(snapshot, rank, 4), plan, first_step=7)) for rank in range(4)]
    for step, expected in enumerate(whole[7:]):
        assert torch.equal(torch.cat([part[step].inputs for part in parts]), expected)


@pytest.mark.parametrize("small_row_bytes", [783, 784], ids=["scattered", "gathered"])
@pytest.mark.parametrize("block_bytes", [1, 200_000, 2**24])
@pytest.mark.parametrize("rank", [0, 2])
def test_windows_made_together_give_the_same_batches(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch, block_bytes: int, rank: int, small_row_bytes: int
) -> None:
    monkeypatch.setattr(batches_module, "SMALL_ROW_BYTES", small_row_bytes)
    data = source(snapshot, rank, 3)
    plans = planned(data, 32)
    plan = plans(1)
    monkeypatch.setattr(batches_module, "BLOCK_BYTES", block_bytes)
    with kept(data, plans) as resident:
        for first in (0, 5, plan.steps - 1):
            expected, found = list(resident.batches(plan, first)), list(training_batches(data, plan, first))
            assert len(found) == plan.steps - first
            assert_equal(expected, found)


@pytest.mark.parametrize("copy", [batches_module._gather, batches_module._scatter])
@given(st.integers(1, 9), st.integers(1, 9), st.data())
def test_rows_stand_where_the_shuffle_says(copy: Any, steps: int, width: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, width - 1))
    share = slice(first, data.draw(st.integers(first + 1, width)))
    random = np.random.default_rng(0)
    rows = Rows(random.integers(0, 256, (steps * width, 12), dtype=np.uint8)[:, 4:], np.arange(steps * width))
    cuts = [0, *sorted(data.draw(st.lists(st.integers(1, len(rows)), unique=True))), len(rows)]
    parts = [rows.part(begin, stop) for begin, stop in pairwise(cuts) if begin < stop]
    shuffle = random.permutation(len(rows)).reshape(steps, width)
    chosen = shuffle[:, share]
    inputs, targets = np.zeros((steps, width + 2, 8), dtype=np.uint8), np.full((steps, width + 2), -1)
    places = slice(1, 1 + chosen.shape[1])
    copy(iter(parts), shuffle, share, inputs[:, places], targets[:, places])
    assert (inputs[:, places] == rows.inputs[chosen]).all()
    assert (targets[:, places] == chosen).all()
    assert (np.delete(targets, np.r_[places], axis=1) == -1).all()
    assert not np.delete(inputs, np.r_[places], axis=1).any()


def test_a_batch_that_is_kept_keeps_its_rows(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_module, "BLOCK_BYTES", 1)
    data = source(snapshot)
    plan = plan_epoch([g.rows for g in data.groups], seed=1, epoch=0, global_batch=30, window_rows=30)
    kept, copies = [], []
    for number, batch in enumerate(training_batches(data, plan)):
        if number % 3 == 0:  # the others give their memory back
            kept.append(batch.inputs[1:])
            copies.append(batch.inputs[1:].clone())
    assert all(torch.equal(k, c) for k, c in zip(kept, copies, strict=True))


def test_memory_serves_again_when_no_tensor_has_it() -> None:
    memory = Recycled(np.uint8)
    array = memory.array(4, 2)
    address = array.ctypes.data
    tensor = torch.from_numpy(array)[1:].view(torch.int16)
    del array
    assert memory.array(4, 2).ctypes.data != address
    del tensor
    assert address in {a.ctypes.data for a in [memory.array(2, 3), memory.array(2, 3)]}
    assert memory.array(5, 2).shape == (5, 2)  # too large for what is free


def test_footers_of_the_last_files_are_kept(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str, bool]] = []
    real = row_groups_module._open

    def spy(path: str, footer: pq.FileMetaData | None = None) -> pq.ParquetFile:
        opened.append((path, footer is not None))
        return real(path, footer)

    groups = source(snapshot).groups
    paths = list(dict.fromkeys(group.path for group in groups))[:3]
    sizes = [pq.read_metadata(path).serialized_size for path in paths]
    monkeypatch.setattr(row_groups_module, "KEPT_FOOTER_BYTES", sum(sizes) - 1)  # any two of them, but not all
    monkeypatch.setattr(row_groups_module, "_open", spy)
    footers = Footers()
    for path in (*paths[:2], paths[0], paths[2], paths[0], paths[1]):
        with footers.open(path) as parquet:
            assert parquet.metadata.num_rows == sum(group.rows for group in groups if group.path == path)
    assert [kept for _, kept in opened] == [False, False, True, False, True, False]


def test_only_the_newest_of_large_footers_is_kept(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_groups_module, "KEPT_FOOTER_BYTES", 1)
    footers = Footers()
    for path in dict.fromkeys(group.path for group in source(snapshot).groups):
        for _ in range(2):
            with footers.open(path) as parquet:
                assert parquet.metadata.num_rows > 0
        assert list(footers._known) == [path]
        assert footers._bytes == pq.read_metadata(path).serialized_size


@pytest.mark.parametrize("slice_rows", [1, 7, 1_000])
def test_segments_are_read_from_any_row(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch, slice_rows: int) -> None:
    monkeypatch.setattr(rows_module, "SLICE_BYTES", slice_rows * IMAGE.nbytes)
    groups = source(snapshot).groups
    reader = RowGroupReader(groups, COLUMNS)
    whole = [reader.read([Segment(number, 0, group.rows)]) for number, group in enumerate(groups[:2])]
    for segment in (Segment(0, 5, 3), Segment(0, 8, 9), Segment(0, 40, 2), Segment(0, 3, 60), Segment(1, 63, 1)):
        found, truth = reader.read([segment]), whole[segment.group].part(segment.first, segment.first + segment.rows)
        assert (found.inputs == truth.inputs).all()
        assert (found.targets == truth.targets).all()
    with pytest.raises(RunError, match="row group 0 ended before its 64 rows"):
        reader.read([Segment(0, 60, 8)])


@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_an_evaluation_reads_every_row_once(snapshot: Snapshot, world_size: int) -> None:
    ranks = [list(evaluation_batches(source(snapshot, rank, world_size, "test"), 4)) for rank in range(world_size)]
    seen = [batch.targets for batches in ranks for batch in batches]
    assert sum(len(targets) for targets in seen) == 21
    assert len(set(keys([batch.inputs for batches in ranks for batch in batches]))) == 21


def test_a_file_with_other_rows_than_the_log_says(snapshot: Snapshot) -> None:
    file = snapshot.of_split("test")[0]
    with pytest.raises(RunError, match="holds 7 rows, but the table's log says 8"):
        list_row_groups([file.model_copy(update={"rows": 8})])


def test_a_missing_file(snapshot: Snapshot) -> None:
    file = snapshot.of_split("test")[0]
    with pytest.raises(RunError, match="cannot read"):
        list_row_groups([file.model_copy(update={"path": file.path + ".gone"})])


def test_a_fault_of_the_source_reaches_the_consumer() -> None:
    def numbers():  # type: ignore[no-untyped-def]
        yield 1
        msg = "broken"
        raise RunError(msg)

    ahead = Prefetch(numbers(), 2)
    assert next(ahead) == 1
    with pytest.raises(RunError, match="broken"):
        next(ahead)
    ahead.close()


def test_normalize_leaves_the_input_alone() -> None:
    inputs = torch.tensor([[0, 255]], dtype=torch.uint8)
    assert normalize(inputs, 1 / 255, 0.5, 0.5).tolist() == [[-1.0, 1.0]]
    floats = torch.ones(1, 2)
    normalize(floats, 2.0, 1.0, 1.0)
    assert floats.tolist() == [[1.0, 1.0]]


def test_memory_does_not_grow_with_the_table(tmp_path: Path) -> None:
    # the smaller table already fills all blocks
    peaks = [peak_megabytes(write_rows(tmp_path / str(rows), rows)) for rows in (200_000, 400_000)]
    assert peaks[1] < peaks[0] + 40  # the table grew by 157 MB of images


def write_rows(path: Path, rows: int) -> str:
    return write_samples(path, train=rows, validation=0, test=0, row_group=5_000)


def peak_megabytes(table: str) -> float:
    code = f"""
from pathlib import Path
from tests.datasets.test_batches import COLUMNS, source
from kbit_spark.datasets.batches import training_batches
from kbit_spark.datasets.sharding import plan_epoch
from kbit_spark.tables.snapshot import resolve
data = source(resolve({table!r}))
plan = plan_epoch([g.rows for g in data.groups], seed=0, epoch=0, global_batch=128, window_rows=4096)
assert sum(1 for _ in training_batches(data, plan)) == plan.steps
(peak,) = [line.split()[1] for line in Path('/proc/self/status').read_text().splitlines() if line.startswith('VmHWM')]
print(int(peak) / 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


@pytest.mark.parametrize("gather_bytes", [1, 20_000, 2**24])
def test_resident_rows_give_the_same_batches(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch, gather_bytes: int
) -> None:
    monkeypatch.setitem(resident_module.GATHER_BYTES, "cpu", gather_bytes)
    for rank in range(3):
        data = source(snapshot, rank, 3)
        plans = planned(data, 32)
        with kept(data, plans) as resident:
            for first in (0, 4):
                assert_equal(resident.batches(plans(1), first), training_batches(data, plans(1), first))


def test_resident_rows_of_several_steps_are_gathered_at_once(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = source(snapshot)
    plans = planned(data, 30, 60)
    with kept(data, plans) as resident:
        plan = plans(0)
        for steps in (1, 4, plan.steps):
            monkeypatch.setitem(resident_module.GATHER_BYTES, "cpu", steps * 30 * IMAGE.nbytes)
            with Operations() as operations:
                assert sum(1 for _ in resident.batches(plan)) == plan.steps
            assert operations.count == 2 * -(-plan.steps // steps)


def test_a_change_in_one_batch_of_resident_rows_is_in_no_other(snapshot: Snapshot) -> None:
    data = source(snapshot)
    plans = planned(data)
    with kept(data, plans) as resident:
        for batch, expected in zip(resident.batches(plans(0)), training_batches(data, plans(0)), strict=True):
            assert torch.equal(batch.inputs, expected.inputs)
            batch.inputs.zero_()
        assert_equal(resident.batches(plans(0)), training_batches(data, plans(0)))


@pytest.mark.parametrize("block_rows", [1, 70, 2**16])
def test_the_order_of_resident_rows_goes_on_into_the_next_epochs(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch, block_rows: int
) -> None:
    monkeypatch.setattr(resident_module, "BLOCK_ROWS", block_rows)
    data = source(snapshot, 1, 2)
    plans = planned(data, 70)
    with kept(data, plans) as resident:
        for epoch, first in ((0, 3), (1, 0), (2, 0), (0, 0), (5, 2)):
            assert_equal(resident.batches(plans(epoch), first), training_batches(data, plans(epoch), first))


@pytest.mark.parametrize("rank", range(3))
def test_resident_rows_are_evaluated_as_streamed_ones(snapshot: Snapshot, rank: int) -> None:
    data = source(snapshot, rank, 3, split="validation")
    with kept(data, planned(data)) as resident:
        assert_equal(resident.evaluation(16), evaluation_batches(data, 16))


@pytest.mark.parametrize("items", range(1, 9))
def test_tensors_of_any_length_are_resident(tmp_path: Path, items: int) -> None:
    rows = {"x": [[float(row + item) for item in range(items)] for row in range(20)], "label": [1] * 20}
    schema = pa.schema([("x", pa.list_(pa.float32())), ("label", pa.int32())])
    table = pa.table(rows, schema=schema).append_column("_split", pa.array(["train"] * 20))
    write_deltalake(tmp_path / "samples", table, partition_by=["_split"])
    snapshot = with_shape(resolve(str(tmp_path / "samples")), "x", (items,))
    columns = Columns("x", "label", require_columns(snapshot, "x", "label"), 4)
    data = Source(list_row_groups(snapshot.of_split("train")), columns, 0, 1)
    plans = planned(data, 6)
    with kept(data, plans) as resident:
        assert_equal(resident.batches(plans(0)), training_batches(data, plans(0)))


def test_rows_are_kept_where_it_helps(snapshot: Snapshot) -> None:
    data = source(snapshot)
    assert resident_rows(data, planned(data), CPU, "auto") is None
    assert resident_rows(data, planned(data), CPU, wanted=False) is None
    assert resident_rows(data, planned(data), CPU, kept_bytes=2**60) is None  # the other split has it all


def test_rows_that_do_not_fit_are_streamed(snapshot: Snapshot, caplog: pytest.LogCaptureFixture) -> None:
    data = source(snapshot)
    huge = replace(data, columns=replace(COLUMNS, tensor=Tensor(dtype="float64", shape=(2**13, 2**14))))
    with caplog.at_level("INFO"):
        assert resident_rows(huge, planned(huge), torch.device("cpu")) is None
    assert "are streamed: they take more than" in caplog.text


def test_batches_for_the_cpu_stay_as_they_are(snapshot: Snapshot) -> None:
    data = source(snapshot)
    plan = plan_epoch([g.rows for g in data.groups], seed=1, epoch=0, global_batch=300, window_rows=600)
    plain = list(training_batches(data, plan))
    assert [b.targets.data_ptr() for b in on_device(iter(plain), torch.device("cpu"))] == [
        b.targets.data_ptr() for b in plain
    ]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_batches_on_the_gpu_are_those_on_the_cpu(snapshot: Snapshot) -> None:
    gpu = torch.device("cuda", 0)
    data = source(snapshot)
    plan = plan_epoch([g.rows for g in data.groups], seed=1, epoch=0, global_batch=30, window_rows=100)
    expected = list(training_batches(data, plan))
    pinned = training_batches(replace(data, pin=True), plan)
    with kept(data, planned(data, 30), gpu) as resident:
        both = list(on_device(pinned, gpu)), list(resident.batches(plan))
    for found in both:
        assert [b.inputs.device.type for b in found] == ["cuda"] * plan.steps
        assert all(torch.equal(f.inputs.cpu(), e.inputs) for f, e in zip(found, expected, strict=True))
        assert all(torch.equal(f.targets.cpu(), e.targets) for f, e in zip(found, expected, strict=True))


def test_array_columns_and_constant_labels(tmp_path: Path) -> None:
    rows = {"x": [[float(i), i / 2, -1.0] for i in range(40)], "label": [i % 4 for i in range(40)]}
    schema = pa.schema([("x", pa.list_(pa.float32())), ("label", pa.int32())])
    table = pa.table(rows, schema=schema).append_column("_split", pa.array(["train"] * 40))
    write_deltalake(tmp_path / "samples", table, partition_by=["_split", "label"])
    plain = resolve((tmp_path / "samples").as_uri())
    with pytest.raises(UsageError, match=r"holds arrays of float32 \(tell their shape: data.input_shape"):
        require_columns(plain, "x", "label")
    snapshot = with_shape(plain, "x", (3,))
    columns = Columns("x", "label", require_columns(snapshot, "x", "label"), 4)
    data = Source(list_row_groups(snapshot.of_split("train")), columns, 0, 1)
    plan = plan_epoch([g.rows for g in data.groups], seed=0, epoch=0, global_batch=40, window_rows=40)
    (batch,) = training_batches(data, plan)
    assert batch.inputs.dtype == torch.float32
    assert (batch.inputs[:, 0] % 4 == batch.targets).all()
    assert sorted(batch.inputs[:, 1].tolist()) == [i / 2 for i in range(40)]
    with pytest.raises(UsageError, match=r"input_shape=\[2, 2\], but column 'x' holds tensors of shape \[3\]"):
        with_shape(snapshot, "x", (2, 2))
