"""What is measured of a run, in which order runs take place, and which configurations an experiment takes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from kbit_spark.config.experiment import ExperimentConfig
from kbit_spark.config.load import load, validate
from kbit_spark.errors import RunError, UsageError
from kbit_spark.events import Event
from kbit_spark.experiments.metrics import best_validation, epochs_of, of_best_epoch, speeds
from kbit_spark.experiments.plan import Plan, read_plan, runs, write_atomically
from kbit_spark.schemas.snapshot import Snapshot

TRAIN = {"data": {"table": "/t"}, "model": "mlp", "model_options": {"hidden": [8]}, "seed": 5}


def config(**changes: Any) -> ExperimentConfig:
    return validate(ExperimentConfig, {"train": TRAIN, "dir": "/x", "iterations": 3, **changes}, "test")


def plan(of: ExperimentConfig) -> Plan:
    return Plan.of(of, Snapshot(table="/t", table_id="1", version=7, files=(), tensors={}), "e")


def epoch(number: int, train_s: float, **more: float) -> Event:
    numbers = {"epoch": number, "train_s": train_s, "data_wait_share": 0.1, "samples_per_s": 100 / train_s, **more}
    return Event("train_epoch", f"epoch={number}", numbers)


# --- what is measured


def test_speeds_are_medians_without_the_first_epoch() -> None:
    found = speeds([epoch(0, 9), epoch(1, 1), epoch(2, 2), epoch(3, 4)])
    assert found == pytest.approx({"epoch_s": 2, "data_wait_s": 0.2, "samples_per_s": 50})
    assert speeds([epoch(0, 9)])["epoch_s"] == 9  # there is no other
    assert speeds([]) == {}


def test_epochs_that_were_gone_on_with_are_not_timed() -> None:
    resume = Event("train_resume", numbers={"epoch": 1, "step": 14})
    assert speeds([epoch(0, 1), resume, epoch(1, 9), epoch(2, 2), epoch(3, 4)])["epoch_s"] == 3
    assert speeds([epoch(0, 1), epoch(1, 9), resume, epoch(1, 9)]) == {}
    assert [e["train_s"] for e in epochs_of([epoch(1, 5), epoch(0, 1), resume, epoch(1, 9)])] == [1, 9]


def test_without_test_rows_the_epoch_with_the_lowest_validation_loss_is_judged() -> None:
    told = [
        epoch(0, 1, validation_loss=0.3, validation_accuracy=0.91),
        epoch(1, 1, validation_loss=0.2, validation_accuracy=0.90),
        epoch(2, 1, validation_loss=0.4, validation_accuracy=0.89),
    ]
    assert of_best_epoch(epochs_of(told)) == {"accuracy": 0.90, "loss": 0.2}
    diverged = epoch(0, 1, validation_loss=math.nan, validation_accuracy=0.1)
    assert of_best_epoch(epochs_of([diverged, *told[1:]])) == {"accuracy": 0.90, "loss": 0.2}
    assert of_best_epoch(epochs_of([diverged])) == {}
    assert best_validation(epochs_of(told)) == {"best_validation_accuracy": 0.91}
    assert of_best_epoch(epochs_of([epoch(0, 1)])) == {}
    assert best_validation([]) == {}


# --- runs


def test_one_configuration_is_repeated_with_other_seeds_on_one_version() -> None:
    found = list(runs(one := config(), plan(one)))
    assert [run.name for run in found] == ["baseline-seed-5", "baseline-seed-6", "baseline-seed-7"]
    assert {run.config.data.version for run in found} == {7}
    assert [run.config.checkpoint.dir for run in found] == [
        f"/x/baseline/seed-{seed}/checkpoints" for seed in (5, 6, 7)
    ]


def test_two_configurations_share_seeds_and_take_turns() -> None:
    found = list(runs(both := config(against={"epochs": 9}), plan(both)))
    assert [(run.configuration[0], run.config.seed) for run in found] == [
        ("b", 5), ("v", 5), ("v", 6), ("b", 6), ("b", 7), ("v", 7),
    ]  # fmt: skip
    assert {run.configuration: run.config.epochs for run in found} == {"baseline": 5, "variant": 9}


# --- configurations


def test_the_second_configuration_is_the_first_with_changes() -> None:
    found = config(against={"optimizer": {"learning_rate": 0.5}, "model_options": {"depth": 2}})
    assert found.variant().model_options == {"hidden": [8], "depth": 2}
    assert found.changes() == {"optimizer.learning_rate": (0.001, 0.5), "model_options.depth": (None, 2)}
    assert config(against={"model": "cnn"}).variant().model_options == {}  # they were the other model's
    assert config().train.checkpoint.dir == "/x"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"against": {"optimizer": {"learning_rat": 1}}},
            "unknown key optimizer.learning_rat; did you mean learning_rate?",
        ),
        ({"against": {"epochs": "many"}}, "against: epochs: "),
        ({"against": {"epochs": 5}}, "the second configuration is the same as the first"),
        ({"against": {"seed": 3, "data": {"version": 3}}}, "both configurations share data.version, seed"),
        ({"against": {"spark": {"spark.executor.memory": "2g"}}}, "both configurations share spark."),
        ({"train": {**TRAIN, "follow": {"enabled": True}}}, "train.follow.enabled=true"),
        ({"train": "nothing"}, "train: "),
        ({"train": {**TRAIN, "checkpoint": 3}}, "train.checkpoint: "),
        ({"iterations": 0}, "iterations: "),
        ({"iteration": 1}, "did you mean iterations?"),
    ],
)
def test_what_cannot_be_compared_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        config(**changes)
    assert says in caught.value.message
    assert "\n" not in caught.value.message


def test_the_run_may_stand_in_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sample = Path(__file__).parents[2] / "kbit_spark/cli/samples"
    with pytest.raises(
        UsageError, match=r"train=train\.yaml: cannot read the configuration train\.yaml.*working folder"
    ):
        load(ExperimentConfig, sample / "experiment.yaml")
    (tmp_path / "train.yaml").write_text("- data")
    with pytest.raises(UsageError, match=r"train=train\.yaml: train\.yaml must hold a mapping"):
        load(ExperimentConfig, sample / "experiment.yaml")
    (tmp_path / "train.yaml").write_text((sample / "train.yaml").read_text())
    found = load(ExperimentConfig, sample / "experiment.yaml", ["train.epochs=2", "against.model=mlp"])
    assert (found.train.epochs, found.variant().model, found.iterations) == (2, "mlp", 8)
    assert found.train.checkpoint.dir == found.dir
    assert set(found.model_fields_set) == set(ExperimentConfig.model_fields)
    assert load(ExperimentConfig, None, ["train=train.yaml", "train.seed=4", "dir=/x"]).train.seed == 4


# --- going on


def test_another_configuration_is_named_and_refused() -> None:
    begun = plan(config(against={"epochs": 9}))
    begun.check(config(against={"epochs": 9}, iterations=20))
    begun.check(config(against={"epochs": 9}, train={**TRAIN, "max_restarts": 0, "spark": {"a.b": "c"}}))
    with pytest.raises(RunError) as caught:
        begun.check(config(train={**TRAIN, "seed": 6, "data": {"table": "/t", "version": 8}}))
    for text in (
        "/x holds another experiment",
        "seed is 5, not 6",
        "data.version is 7, not 8",
        "against.epochs is 9, not None",
    ):
        assert text in caught.value.message
    assert "choose another dir" in caught.value.hint


def test_a_plan_is_kept_whole_or_refused(tmp_path: Path) -> None:
    assert read_plan(tmp_path) is None
    write_atomically(tmp_path / "plan.json", plan(config()).model_dump_json())
    assert read_plan(tmp_path) == plan(config())
    assert [file.name for file in tmp_path.iterdir()] == ["plan.json"]
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(RunError, match="cannot read"):
        read_plan(tmp_path)
    with pytest.raises(RunError, match="cannot write"):
        write_atomically(tmp_path / "plan.json" / "x", "")
