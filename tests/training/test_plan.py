"""What is refused before anything is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kbit_spark import train
from kbit_spark.config.train import TrainConfig
from kbit_spark.errors import RunError, UsageError
from tests.fixtures.samples import write_samples
from tests.follow.stream import Stream
from tests.follow.test_refusals import learnt


def config(table: str, tmp_path: Path, **changes: Any) -> TrainConfig:
    base = {"data": {"table": table}, "model": "mlp", "checkpoint": {"dir": str(tmp_path / "checkpoints")}}
    return TrainConfig.model_validate({**base, **changes})


def test_fewer_rows_than_a_batch(tmp_path: Path) -> None:
    table = write_samples(tmp_path / "samples", train=20, validation=0, test=0)
    with pytest.raises(RunError, match="20 training rows at version 0, fewer than one global batch of 128"):
        train.plan(config(table, tmp_path))


def test_fp16_on_the_cpu(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="fp16 needs a GPU"):
        train.plan(config("nowhere", tmp_path, precision="fp16", device="cpu"))


def test_checkpoints_in_an_object_store(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"checkpoint.dir=s3://bucket/c is no folder \(name a folder"):
        train.plan(config("nowhere", tmp_path, checkpoint={"dir": "s3://bucket/c"}))


def test_a_version_that_vacuum_may_break(tmp_path: Path) -> None:
    table = write_samples(tmp_path / "samples", train=200, validation=0, test=0)
    with pytest.raises(RunError, match=r"keeps removed files for 168\.0 h only, but the run may take 240\.0 h"):
        train.plan(config(table, tmp_path, data={"table": table, "longest_run_s": 864_000}))


def test_an_array_column_needs_a_shape(tmp_path: Path) -> None:
    rows = pa.table({"x": [[0.5, 1.0]] * 200, "label": [1] * 200, "_split": ["train"] * 200})
    write_deltalake(tmp_path / "arrays", rows, partition_by=["_split"])
    data = {"table": str(tmp_path / "arrays"), "input": "x"}
    with pytest.raises(UsageError, match="tell their shape"):
        train.plan(config("", tmp_path, data=data))
    snapshot, _ = train.plan(config("", tmp_path, data={**data, "input_shape": [2]}))
    assert snapshot.tensors["x"].dtype == "float64"


def test_an_unknown_model(tmp_path: Path) -> None:
    table = write_samples(tmp_path / "samples", train=200, validation=0, test=0)
    with pytest.raises(UsageError, match="unknown model 'resnet'; known: cnn, mlp"):
        train.plan(config(table, tmp_path, model="resnet"))


def test_no_tensor_column(tmp_path: Path) -> None:
    table = write_samples(tmp_path / "samples", train=200, validation=0, test=0)
    with pytest.raises(UsageError, match="no tensor column 'label'; its tensor columns: image"):
        train.plan(config(table, tmp_path, data={"table": table, "input": "label"}))


def test_a_folder_of_follow_mode_is_not_gone_on_with_by_a_run_of_another_kind(tmp_path: Path) -> None:
    made = learnt(Stream(tmp_path / "samples"))
    with pytest.raises(RunError, match=r"is of a window of follow mode \(start with --follow"):
        train.plan(made)
