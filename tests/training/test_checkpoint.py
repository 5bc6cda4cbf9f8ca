"""Checkpoints: complete or not there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kbit_spark.config.train import TrainConfig
from kbit_spark.errors import RunError
from kbit_spark.schemas import Snapshot
from kbit_spark.training import checkpoint
from kbit_spark.training.checkpoint import Identity, Position

CONFIG = TrainConfig.model_validate({"data": {"table": "t"}, "checkpoint": {"dir": "c"}})
SNAPSHOT = Snapshot(table="t", table_id="id", version=3, files=(), tensors={})


def save(root: Path, step: int, best: int | None = None, keep_last: int = 2) -> Path:
    return checkpoint.save(
        root,
        {"weights": torch.full((3,), float(step))},
        identity=Identity.of(CONFIG, SNAPSHOT),
        table="t",
        world_size=2,
        position=Position(total_steps=step, best_step=best),
        keep_last=keep_last,
    )


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    save(tmp_path, 5)
    found = checkpoint.newest(tmp_path)
    assert found is not None
    assert found.manifest.position.total_steps == 5
    assert found.load()["weights"].tolist() == [5.0] * 3
    checkpoint.check_identity(found, Identity.of(CONFIG, SNAPSHOT))


def test_the_newest_intact_one_wins(tmp_path: Path) -> None:
    save(tmp_path, 5)
    damaged = save(tmp_path, 10)
    with (damaged / "state.pt").open("r+b") as stream:
        stream.seek(-1, 2)
        stream.write(b"\x7f")
    (tmp_path / "step-000000020").mkdir()
    found = checkpoint.newest(tmp_path)
    assert found is not None
    assert found.path.name == "step-000000005"


def test_the_last_ones_and_the_best_are_kept(tmp_path: Path) -> None:
    (tmp_path / ".step-000000001-77").mkdir()
    for step in (1, 2, 3, 4, 5):
        save(tmp_path, step, best=2 if step >= 2 else None)
    assert sorted(path.name[-1] for path in tmp_path.iterdir()) == ["2", "4", "5"]


def test_none_at_all(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path / "nowhere") is None


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot write the checkpoint"):
        save(tmp_path / "file", 1)


def test_another_table_is_refused(tmp_path: Path) -> None:
    save(tmp_path, 5)
    found = checkpoint.newest(tmp_path)
    assert found is not None
    other = SNAPSHOT.model_copy(update={"table_id": "other", "version": 4})
    with pytest.raises(RunError, match="table_id is 'id', not 'other'; version is 3, not 4"):
        checkpoint.check_identity(found, Identity.of(CONFIG, other))
