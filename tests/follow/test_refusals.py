"""What follow mode refuses at its start, before anything is started: what does not belong together, or is damaged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kbit_spark import follow
from kbit_spark.config.train import TrainConfig
from kbit_spark.errors import RunError
from kbit_spark.training import checkpoint
from kbit_spark.training.champion import decide, read_promoted
from kbit_spark.training.checkpoint import Keep
from kbit_spark.training.manifest import Position
from kbit_spark.training.promotion import Paired
from tests.follow.stream import Stream
from tests.follow.test_windows import config, manifest, next_window


def learnt(stream: Stream, **changes: Any) -> TrainConfig:
    """Return the configuration of a run that has learnt and promoted the table's first window."""
    made = config(stream, stop_after_idle_s=0.1).model_copy(update={"model": "mlp", "device": "cpu", **changes})
    stream.append(40)
    work = next_window(made, None)
    assert work is not None
    done = manifest(made, work)
    root = stream.path.parent / "checkpoints"
    path = checkpoint.save(root, {}, done, Keep(1, 1))
    decide(root, path, work.window, Paired(0, 0, 0, 0), 0.05)
    return made


def refusal(config: TrainConfig) -> RunError:
    with pytest.raises(RunError) as caught:
        follow.run(config)
    return caught.value


def test_a_table_made_anew_is_another_one(tmp_path: Path) -> None:
    stream = Stream(tmp_path / "samples")
    made = learnt(stream)
    shutil.rmtree(stream.path)
    stream.append(40)
    assert "table_id is " in refusal(made).message


def test_the_configuration_of_another_run_is_refused(tmp_path: Path) -> None:
    made = learnt(Stream(tmp_path / "samples"))
    assert "seed is 0, not 5" in refusal(made.model_copy(update={"seed": 5})).message


@pytest.mark.parametrize("name", ["champion/step-000000009", "../elsewhere", "champion"])
def test_a_model_in_use_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    made = learnt(Stream(tmp_path / "samples"))
    file = tmp_path / "checkpoints/promoted.json"
    document = json.loads(file.read_text())
    document["champion"]["checkpoint"] = name
    file.write_text(json.dumps(document))
    error = refusal(made)
    assert error.message.startswith(f"the model that {file} names as the one in use cannot be read: ")
    assert "remove promoted.json" in error.hint


def test_a_model_in_use_of_another_run_is_refused(tmp_path: Path) -> None:
    made = learnt(Stream(tmp_path / "samples"))
    learnt(Stream(tmp_path / "other/samples"), model="cnn")
    for name in ("champion", "promoted.json"):
        shutil.move(tmp_path / "checkpoints" / name, tmp_path / name)
        shutil.move(tmp_path / "other/checkpoints" / name, tmp_path / "checkpoints" / name)
    assert "model is 'cnn', not 'mlp'" in refusal(made).message


def ended(tmp_path: Path, best_step: int | None, keep: int = 2) -> TrainConfig:
    """Return the configuration that follows a run without follow mode, of steps 3 and 9."""
    stream = Stream(tmp_path / "samples")
    made = config(stream, stop_after_idle_s=0.1).model_copy(update={"model": "mlp", "device": "cpu"})
    stream.append(40)
    work = next_window(made, None)
    assert work is not None
    plain, root = manifest(made, work).model_copy(update={"window": None}), tmp_path / "checkpoints"
    for step in (3, 9):
        position = Position(epoch=step // 3, total_steps=step, best_step=best_step, finished=step == 9)
        checkpoint.save(root, {}, plain.model_copy(update={"position": position}), Keep(keep, 0))
    return made


def in_use(root: Path) -> int:
    """Return after how many steps the model in use was saved; it is intact."""
    promoted = read_promoted(root)
    assert promoted is not None
    return promoted.read(root).manifest.position.total_steps


@pytest.mark.parametrize(("best_step", "keep", "adopted"), [(3, 2, 3), (9, 2, 9), (None, 2, 9), (3, 1, 9)])
def test_the_first_model_in_use_is_the_best_of_the_run_before(
    tmp_path: Path, best_step: int | None, keep: int, adopted: int
) -> None:
    follow.Windows(ended(tmp_path, best_step, keep)).look()
    assert in_use(tmp_path / "checkpoints") == adopted


def test_a_best_model_that_is_damaged_is_passed_over_for_the_last(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = ended(tmp_path, best_step=3)
    (tmp_path / "checkpoints/step-000000003/state.pt").write_bytes(b"")
    follow.Windows(made).look()
    assert in_use(tmp_path / "checkpoints") == 9
    assert "step-000000003 is damaged" in caplog.text


@pytest.mark.parametrize("name", ["state.pt", "manifest.json"])
def test_the_way_out_of_a_damaged_model_in_use_is_one(tmp_path: Path, name: str) -> None:
    made, root = ended(tmp_path, best_step=3), tmp_path / "checkpoints"
    follow.Windows(made).look()
    (root / "champion/step-000000003" / name).unlink()
    assert "remove promoted.json" in refusal(made).hint
    (root / "promoted.json").unlink()
    follow.Windows(made).look()
    assert in_use(root) == 3
