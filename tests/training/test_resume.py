"""A run that was killed and goes on ends as one that was never killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kbit_spark.training import checkpoint
from tests.fixtures.samples import write_samples
from tests.training.ranks import train

ROWS, BATCH, EPOCHS = 100, 24, 3
STEPS = EPOCHS * ROWS // BATCH
Weights = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("table") / "samples"
    return write_samples(path, train=ROWS, validation=20, test=20, row_group=32)


def config(table: str, folder: Path, options: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "data": {"table": table, "shuffle_window_rows": 48},
        "model": "tests.training.ranks:noisy",
        "model_options": {"die": str(folder / "die"), **(options or {})},
        "world_size": 2,
        "epochs": EPOCHS,
        "global_batch_size": BATCH,
        "device": "cpu",
        "optimizer": {"warmup_steps": 3, "decay": "cosine", "clip_norm": 5.0},
        "checkpoint": {"dir": str(folder / "checkpoints"), "every_steps": 2},
        "log_every_steps": 1,
    }
    return {**base, **changes}


def equal(left: Weights | None, right: Weights | None) -> bool:
    assert left is not None
    assert right is not None
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def killed_at(step: int, data: dict[str, Any], folder: Path) -> Weights | None:
    """Kill the last rank in its step number `step` (from 0), then go on."""
    (folder / "die").write_text(str(step))
    assert train(data) is None
    (folder / "die").unlink()
    return train(data)


@pytest.fixture(scope="module")
def undisturbed(table: str, tmp_path_factory: pytest.TempPathFactory) -> Weights | None:
    return train(config(table, tmp_path_factory.mktemp("undisturbed")))


@pytest.mark.parametrize("step", range(STEPS))
def test_killed_at_any_step(table: str, tmp_path: Path, step: int, undisturbed: Weights | None) -> None:
    assert equal(killed_at(step, config(table, tmp_path), tmp_path), undisturbed)


def test_three_ranks_add_gradients_in_the_same_order_after_a_resume(table: str, tmp_path: Path) -> None:
    whole = train(config(table, tmp_path / "whole", world_size=3))
    (tmp_path / "killed").mkdir()
    assert equal(killed_at(7, config(table, tmp_path / "killed", world_size=3), tmp_path / "killed"), whole)


def test_accumulated_gradients_and_sgd(table: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"optimizer": {"name": "sgd", "momentum": 0.9, "accumulate_steps": 3}}
    whole = train(config(table, tmp_path / "whole", **changes))
    (tmp_path / "killed").mkdir()
    assert equal(killed_at(6, config(table, tmp_path / "killed", **changes), tmp_path / "killed"), whole)


def test_resident_rows_train_the_same_weights(table: str, tmp_path: Path, undisturbed: Weights | None) -> None:
    data = {"table": table, "shuffle_window_rows": 48, "resident": True}
    assert equal(killed_at(5, config(table, tmp_path, data=data), tmp_path), undisturbed)


def test_a_damaged_newest_checkpoint_costs_steps_but_changes_nothing(
    table: str, tmp_path: Path, undisturbed: Weights | None
) -> None:
    (tmp_path / "die").write_text("9")
    assert train(config(table, tmp_path)) is None
    (tmp_path / "die").unlink()
    newest = checkpoint.newest(tmp_path / "checkpoints")
    assert newest is not None
    (newest.path / "state.pt").write_bytes((newest.path / "state.pt").read_bytes()[:-1])
    assert equal(train(config(table, tmp_path)), undisturbed)


def batches(folder: Path, world_size: int) -> list[list[str]]:
    """Return the rows of each global batch in the order of ranks."""
    ranks = [[line.split() for line in (folder / f"seen-{r}").read_text().splitlines()] for r in range(world_size)]
    return [[row for part in parts for row in part] for parts in zip(*ranks, strict=True)]


def test_another_world_size_sees_the_same_batches_and_ends_close(table: str, tmp_path: Path) -> None:
    """One rank begins, three ranks go on: the batches are those of a run that two ranks made alone."""
    whole_folder, moved = tmp_path / "whole", tmp_path / "moved"
    for folder in (whole_folder, moved):
        folder.mkdir()
    changes: dict[str, Any] = {"optimizer": {"name": "sgd", "learning_rate": 0.1}}
    whole = train(
        config(table, whole_folder, {"noise": False, "die": "", "seen": str(whole_folder / "seen")}, **changes)
    )
    (moved / "die").write_text("6")
    options = {"noise": False, "seen": str(moved / "seen")}
    first = config(table, moved, options, world_size=1, **changes)
    assert train(first) is None
    before = batches(moved, 1)
    for file in moved.glob("seen-*"):
        file.unlink()
    (moved / "die").unlink()
    after = train({**first, "world_size": 3})
    resumed = batches(moved, 3)
    expected = batches(whole_folder, 2)
    at = len(expected) - len(resumed)
    assert at in (2, 4, 6)  # the last checkpoints may not be written yet when the rank dies
    assert before[:at] == expected[:at]
    assert resumed == expected[at:]
    assert whole is not None
    assert after is not None
    assert all(torch.allclose(whole[name], after[name], atol=1e-5) for name in whole)
