"""What is refused before anything is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbit_spark import train
from kbit_spark.config.train import TrainConfig
from kbit_spark.errors import RunError, UsageError
from tests.fixtures.samples import write_samples


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


def test_an_unknown_model(tmp_path: Path) -> None:
    table = write_samples(tmp_path / "samples", train=200, validation=0, test=0)
    with pytest.raises(UsageError, match="unknown model 'resnet'; known: cnn, mlp"):
        train.plan(config(table, tmp_path, model="resnet"))


def test_no_tensor_column(tmp_path: Path) -> None:
    table = write_samples(tmp_path / "samples", train=200, validation=0, test=0)
    with pytest.raises(RunError, match="no tensor column 'label'; its tensor columns: image"):
        train.plan(config(table, tmp_path, data={"table": table, "input": "label"}))
