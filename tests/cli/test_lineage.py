"""`kbit lineage`: what stands behind a checkpoint, and who has seen a record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from kbit_spark.cli.lineage import Coordinates
from kbit_spark.cli.main import app
from kbit_spark.config.train import TrainConfig
from kbit_spark.errors import RunError, UsageError
from kbit_spark.schemas.ledger import OffsetRange
from kbit_spark.schemas.snapshot import Snapshot
from kbit_spark.training import checkpoint
from kbit_spark.training.checkpoint import Keep
from kbit_spark.training.manifest import Identity, Lineage, Manifest, Position, Window

CONFIG = TrainConfig.model_validate({"data": {"table": "/t"}, "checkpoint": {"dir": "/c"}, "global_batch_size": 64})


def save(root: Path, step: int, end: int, complete: bool = True, window: Window | None = None) -> Path:
    """Save a checkpoint of a table that holds the offsets 10 to `end` of digits[1]."""
    ranges = (OffsetRange(topic="digits", partition=1, start=10, end=end),)
    snapshot = Snapshot(
        table="/t", table_id="id", version=end, files=(), tensors={}, kafka=ranges, kafka_complete=complete
    )
    manifest = Manifest(
        identity=Identity.of(CONFIG, snapshot),
        position=Position(epoch=2, total_steps=step),
        lineage=Lineage.of(CONFIG, snapshot, "0.1.0 sources abc"),
        world_size=1,
        window=window,
    )
    return checkpoint.save(root, {}, manifest, Keep(last=9, best=1))


def kbit(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["lineage", *map(str, arguments)])


def seen(*arguments: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(kbit("--json", *arguments).stdout)
    return found


def test_a_checkpoint_tells_its_lineage(tmp_path: Path) -> None:
    path = save(tmp_path, 40, 20)
    text = kbit(path).stdout
    for line in ("(id id)", "versions       20", "digits[1] 10 to 19", "epoch 2, 40 batches of 64 rows", "sources abc"):
        assert line in text
    assert "global_batch_size: 64" in text
    assert kbit(tmp_path).stdout == text  # the newest of a folder
    document = json.loads(kbit("--json", path).stdout)
    assert document["lineage"]["config"]["data"]["table"] == "/t"
    assert document["lineage"]["kafka"] == [{"topic": "digits", "partition": 1, "start": 10, "end": 20}]


def test_every_checkpoint_that_has_seen_a_record_is_named(tmp_path: Path) -> None:
    first, later = save(tmp_path / "a", 1, 20), save(tmp_path / "b" / "deep", 2, 30)
    both = [str(first), str(later)]
    assert [f["checkpoint"] for f in seen("--offset", "digits:1:19", tmp_path)] == both
    assert [f["checkpoint"] for f in seen("--offset", "digits:1:20", tmp_path)] == both[1:]
    assert kbit("--offset", "digits:1:20", tmp_path).exit_code == 0
    for stranger in ("digits:1:9", "digits:1:30", "digits:0:15", "other:1:15"):
        result = kbit("--offset", stranger, tmp_path)
        assert result.exit_code == 1
        assert f"no checkpoint under {tmp_path} has seen {stranger}" in result.stdout
        assert seen("--offset", stranger, tmp_path) == []


def test_what_the_windows_of_follow_mode_have_seen(tmp_path: Path) -> None:
    numbers = {"as_of": 9, "new_rows": 5, "replayed_rows": 4, "repeated_rows": 0}
    ends = (20, 30)
    paths = [
        save(tmp_path, step, ends[step], window=Window(
            number=step, after=step - 1, last=step, first_epoch=step, rows_so_far=5 * (step + 1), **numbers
        )) for step in (0, 1)
    ]  # fmt: skip
    assert (
        "window         1, under way: versions 1 to 1, 5 new rows, 4 replayed, 10 new ones so far"
        in kbit(paths[1]).stdout
    )
    assert [f["checkpoint"] for f in seen("--offset", "digits:1:15", tmp_path)] == list(map(str, paths))
    (later,) = seen("--offset", "digits:1:25", tmp_path)
    assert (later["checkpoint"], later["reason"]) == (str(paths[1]), "in /t version up to 30")


def test_a_checkpoint_of_which_nobody_can_tell_is_named_too(tmp_path: Path) -> None:
    lost, damaged = save(tmp_path, 1, 20, complete=False), save(tmp_path, 2, 20)
    (damaged / "manifest.json").write_text("{")
    found = seen("--offset", "digits:1:9", tmp_path)
    assert [(f["checkpoint"], f["seen"]) for f in found] == [(str(lost), "unknown"), (str(damaged), "unknown")]
    assert "lost its oldest commits" in found[0]["reason"]
    assert kbit("--offset", "digits:1:9", tmp_path).exit_code == 0


def test_nothing_to_tell(tmp_path: Path) -> None:
    assert isinstance(kbit(tmp_path).exception, RunError)
    assert isinstance(kbit("--offset", "t:0:1", tmp_path).exception, RunError)


def test_damaged_is_only_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "step-1").mkdir()
    for name, said in (
        ("nope", f"there is no {tmp_path}/nope"),
        ("file", f"{tmp_path}/file is a file, not a folder"),
        ("step-1", f"the checkpoint {tmp_path}/step-1 is damaged"),
    ):
        error = kbit(tmp_path / name).exception
        assert isinstance(error, RunError)
        assert error.message.startswith(said)
    assert "no checkpoints under" in str(kbit("--offset", "t:0:1", tmp_path / "nope").exception)


@pytest.mark.parametrize("text", ["", "t", "t:1", ":1:2", "t:x:1", "t:1:-2", "t:1:", f"t:0:{2**63}"])
def test_what_names_no_record(text: str) -> None:
    with pytest.raises(UsageError, match="write it as topic:partition:offset"):
        Coordinates.parse(text)


@given(st.text("abc.-_", min_size=1), st.integers(0, 2**31), st.integers(0, 2**63 - 1))
def test_coordinates_come_back(topic: str, partition: int, offset: int) -> None:
    assert Coordinates.parse(f"{topic}:{partition}:{offset}") == Coordinates(topic, partition, offset)
