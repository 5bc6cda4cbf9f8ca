"""Checkpoints: complete or not there."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

from kbit_spark.config.train import TrainConfig
from kbit_spark.errors import RunError
from kbit_spark.schemas.ledger import OffsetRange
from kbit_spark.schemas.snapshot import Snapshot
from kbit_spark.training import checkpoint
from kbit_spark.training.checkpoint import Keep, newest
from kbit_spark.training.manifest import Identity, Lineage, Manifest, Position

CONFIG = TrainConfig.model_validate({"data": {"table": "t"}, "checkpoint": {"dir": "c"}})
RANGES = (OffsetRange(topic="digits", partition=0, start=0, end=9),)
SNAPSHOT = Snapshot(table="t", table_id="id", version=3, files=(), tensors={}, kafka=RANGES)


def manifest(step: int, loss: float | None = None) -> Manifest:
    return Manifest(
        identity=Identity.of(CONFIG, SNAPSHOT),
        position=Position(total_steps=step),
        lineage=Lineage.of(CONFIG, SNAPSHOT, "0.1.0"),
        world_size=2,
        validation_loss=loss,
    )


def save(root: Path, step: int, loss: float | None = None, keep: Keep = Keep(last=2, best=1)) -> Path:  # noqa: B008
    return checkpoint.save(root, {"weights": torch.full((300,), float(step))}, manifest(step, loss), keep)


def steps(root: Path) -> list[int]:
    return sorted(int(path.name.partition("-")[2]) for path in root.iterdir())


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    save(tmp_path, 5)
    found = checkpoint.newest(tmp_path)
    assert found is not None
    assert found.manifest.position.total_steps == 5
    assert found.manifest.lineage.kafka == RANGES
    assert found.load()["weights"].tolist() == [5.0] * 300
    checkpoint.check_identity(found, Identity.of(CONFIG, SNAPSHOT))


def truncate(path: Path) -> None:
    with (path / "state.pt").open("r+b") as stream:
        stream.truncate(100)


def flip_a_byte(path: Path) -> None:
    state = bytearray((path / "state.pt").read_bytes())
    state[len(state) // 2] ^= 1
    (path / "state.pt").write_bytes(state)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (truncate, "state.pt has 100 bytes, not"),
        (flip_a_byte, "state.pt does not match its SHA-256"),
        (lambda path: (path / "state.pt").unlink(), "state.pt: No such file"),
        (lambda path: (path / "manifest.json").unlink(), "manifest.json: No such file"),
        (lambda path: (path / "manifest.json").write_text('{"format": 2'), "manifest.json cannot be read"),
        (lambda path: (path / "manifest.json").write_text('{"format": 1}'), "is of format 1, this version reads 2"),
    ],
)
def test_a_damaged_one_is_passed_over_and_named(tmp_path: Path, damage: object, reason: str) -> None:
    save(tmp_path, 5)
    damage(save(tmp_path, 10))  # type: ignore[operator]
    found = checkpoint.newest(tmp_path)
    assert found is not None
    assert found.path.name == "step-000000005"
    (said,) = found.damaged
    assert "step-000000010 is damaged" in said
    assert reason in said


def test_no_intact_one_ends_the_run_instead_of_beginning_anew(tmp_path: Path) -> None:
    truncate(save(tmp_path, 5))
    with pytest.raises(RunError, match=r"no checkpoint under .* is intact: .*step-000000005 .* state.pt has 100 bytes"):
        checkpoint.newest(tmp_path)


def test_loading_runs_no_code(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (exec, (f"open({str(tmp_path / 'harm')!r}, 'w')",))

    path = checkpoint.save(tmp_path / "c", {"weights": Harmful()}, manifest(1), Keep(last=1, best=1))
    with pytest.raises(pickle.UnpicklingError):
        checkpoint.read(path).load()
    assert not (tmp_path / "harm").exists()


def test_the_last_ones_and_the_best_are_kept(tmp_path: Path) -> None:
    (tmp_path / ".step-000000001-77").mkdir()
    for step, loss in enumerate([0.9, 0.2, 0.2, None, 0.5, 0.8, None], start=1):
        save(tmp_path, step, loss)
    assert steps(tmp_path) == [2, 6, 7]
    save(tmp_path, 8, 0.3, Keep(last=1, best=3))
    assert steps(tmp_path) == [2, 6, 8]


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


def test_the_one_just_written_stays_though_a_damaged_one_is_newer(tmp_path: Path) -> None:
    save(tmp_path, 1)
    truncate(save(tmp_path, 9))
    save(tmp_path, 2, keep=Keep(last=1, best=0))
    assert steps(tmp_path) == [2, 9]
    found = newest(tmp_path)
    assert found is not None
    assert found.manifest.position.total_steps == 2


def test_damaged_ones_that_are_newer_keep_no_place_of_the_last_and_the_best(tmp_path: Path) -> None:
    save(tmp_path, 1, loss=0.5)
    for step in (8, 9):
        truncate(save(tmp_path, step, loss=0.1, keep=Keep(last=3, best=3)))
    for step, loss in ((2, 0.4), (3, 0.6), (4, 0.7), (5, 0.8)):
        save(tmp_path, step, loss=loss)
    assert steps(tmp_path) == [2, 4, 5, 8, 9]
    save(tmp_path, 9, loss=0.2)
    assert steps(tmp_path) == [8, 9]
