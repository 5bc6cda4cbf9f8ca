"""An experiment as a person runs it: killed in the middle, started again, compared; and what is refused."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kbit_spark import experiment
from kbit_spark.config.experiment import ExperimentConfig
from kbit_spark.config.load import validate
from kbit_spark.errors import KbitError, RunError, UsageError
from kbit_spark.telemetry.report import read_events
from kbit_spark.training import checkpoint
from tests.fixtures.jobs import ROOT, SMALL, Job, eventually, start
from tests.fixtures.samples import write_samples

JOB = "jobs/experiment.py"
MASTER = ("--master", "local-cluster[1,1,1024]", *SMALL)
EPOCHS, ROWS, BATCH = 3, 320, 32
ORDER = [("baseline", 0), ("variant", 0), ("variant", 1), ("baseline", 1), ("baseline", 2), ("variant", 2)]


def config(folder: Path, **changes: Any) -> dict[str, Any]:
    """Return an experiment whose model takes its time for as long as the file `folder`/slow is there."""
    train = {
        "data": {"table": str(folder / "samples"), "shuffle_window_rows": 128},
        "model": "tests.training.models:slow",
        "model_options": {"marker": str(folder / "slow"), "pause_s": 0.2},
        "device": "cpu",
        "epochs": EPOCHS,
        "global_batch_size": BATCH,
        "checkpoint": {"every_steps": 2},
        "telemetry": {"run_dir": str(folder / "runs")},
    }
    base = {"train": {**train, **changes.pop("train", {})}, "iterations": 3, "dir": str(folder / "experiment")}
    return {**base, "against": {"optimizer": {"learning_rate": 0.01}}, **changes}


def run(folder: Path, **changes: Any) -> Any:
    return experiment.run(validate(ExperimentConfig, config(folder, **changes), "test"))


def refusal(folder: Path, **changes: Any) -> KbitError:
    with pytest.raises(KbitError) as caught:
        run(folder, **changes)
    return caught.value


def in_mid_epoch(folder: Path) -> bool:
    """Tell whether the third run is in the middle of an epoch that is not its first."""
    found = checkpoint.newest(folder / "experiment/variant/seed-1/checkpoints")
    return found is not None and found.manifest.position.epoch >= 1 and found.manifest.position.step > 0


def results(folder: Path) -> dict[tuple[str, int], bytes]:
    files = sorted((folder / "experiment").glob("*/seed-*/result.json"))
    return {(file.parts[-3], int(file.parts[-2].removeprefix("seed-"))): file.read_bytes() for file in files}


def killed_in_the_third_run(folder: Path) -> None:
    job: Job = start(folder, config(folder), MASTER, script=JOB)
    try:
        eventually(lambda: len(results(folder)) >= 2, poll_s=0.02)
        (folder / "slow").touch()
        eventually(lambda: in_mid_epoch(folder))
        job.python_driver().kill()
        _, output = job.wait(60)
        assert "Traceback" not in output
        assert not job.left_over(30)
    finally:
        job.kill()
    (folder / "slow").unlink()


def test_an_experiment_that_was_killed_runs_only_what_is_missing(tmp_path: Path) -> None:
    table = write_samples(tmp_path / "samples", train=ROWS, validation=64, test=100)
    killed_in_the_third_run(tmp_path)
    before = results(tmp_path)
    assert list(before) == ORDER[:2]
    partial = json.loads((tmp_path / "experiment/experiment.json").read_text())
    assert len(partial["results"]) == 2
    write_samples(tmp_path / "samples", train=50, seed=1)  # the table goes on to version 1

    code, output = start(tmp_path, config(tmp_path), MASTER, script=JOB, measured=True).wait()
    assert code == 0, output
    assert "Traceback" not in output
    assert f"4 of 6 runs to do on {table}, version 0\n" in output
    assert len(re.findall(r"^iteration \d+ ", output, re.MULTILINE)) == 4
    assert output.count("iteration ok\n") == 4
    assert "too few pairs to tell" in output

    found = results(tmp_path)
    assert len(found) == 6
    assert {key: found[key] for key in before} == before
    document = json.loads((tmp_path / "experiment/experiment.json").read_text())
    ended = document["results"]
    assert [(r["configuration"], r["seed"]) for r in ended] == ORDER
    assert sorted(ended, key=lambda r: r["finished_at"]) == ended
    assert {r["version"] for r in ended} == {0}
    assert [r["resumed"] for r in ended] == [False, False, True, False, False, False]
    assert all([e["epoch"] for e in r["epochs"]] == [0, 1, 2] for r in ended)
    wanted = {"accuracy", "loss", "best_validation_accuracy", "epoch_s", "data_wait_s", "samples_per_s"}
    assert all(set(r["metrics"]) == wanted for r in ended)
    assert {r["config"]["optimizer"]["learning_rate"] for r in ended if r["configuration"] == "variant"} == {0.01}
    manifests = [checkpoint.read(Path(r["checkpoint"])).manifest for r in ended]
    assert [m.identity.seed for m in manifests] == [seed for _, seed in ORDER]
    assert {m.lineage.versions for m in manifests} == {(0,)}

    loss = document["comparisons"]["loss"]
    assert (loss["pairs"], loss["p_value"], loss["verdict"]) == (3, 0.25, "too few pairs to tell")
    assert document["summaries"]["variant"]["loss"]["n"] == 3
    assert "3 pairs of runs cannot show a difference" in document["notes"][0]
    assert len(list(csv.DictReader((tmp_path / "experiment/iterations.csv").open()))) == 6
    assert (tmp_path / "experiment/report.html").read_text().count("<svg") == 10

    (log,) = (tmp_path / "runs").glob("*-variant-seed-1/events.jsonl")
    told = read_events([log])
    assert [e.numbers["seed"] for e in told if e.kind == "experiment_iteration"] == [1]
    assert [e.labels["phase"] for e in told if e.kind == "run"] == ["start", "start", "end"]
    assert len(list((tmp_path / "runs").iterdir())) == 6

    again = run(tmp_path)  # nothing is left to run, so no application is needed
    assert len(again.results) == 6
    assert results(tmp_path) == found
    assert len(run(tmp_path, iterations=2).results) == 4

    error = refusal(tmp_path, train={"epochs": 4})
    assert isinstance(error, RunError)
    assert "holds another experiment: epochs is 3, not 4" in error.message
    error = refusal(tmp_path, against={})
    assert "against.optimizer.learning_rate is 0.01, not None" in error.message
    foreign = tmp_path / "experiment/baseline/seed-0/result.json"
    foreign.write_bytes(found["baseline", 0].replace(partial["experiment"].encode(), b"another"))
    assert "result.json is of another experiment: another, not " in refusal(tmp_path).message
    foreign.write_text("{")
    assert "cannot read" in refusal(tmp_path).message
    foreign.unlink()
    (Path(table) / "_delta_log").rename(tmp_path / "log")
    assert "no Delta table" in refusal(tmp_path).message


def test_without_test_rows_validation_judges_and_a_fault_names_its_run(spark: SparkSession, tmp_path: Path) -> None:
    write_samples(tmp_path / "samples", train=ROWS, validation=64, test=0)
    changes: dict[str, Any] = {"against": {}, "train": {"model": "mlp", "model_options": {}, "epochs": 1}}
    (result,) = run(tmp_path, iterations=1, **changes).results
    assert (result.split, len(result.epochs)) == ("validation", 1)
    assert result.metrics["accuracy"] == result.epochs[0]["validation_accuracy"]
    assert result.metrics["epoch_s"] == result.epochs[0]["train_s"]
    (tmp_path / "experiment/baseline/seed-1/checkpoints/step-000000001").mkdir(parents=True)
    error = refusal(tmp_path, iterations=2, **changes)
    assert error.message.startswith("baseline, seed 1: no checkpoint under ")
    assert list(results(tmp_path)) == [("baseline", 0)]


def test_what_can_never_run_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    write_samples(tmp_path / "samples", train=ROWS)
    error = refusal(tmp_path, against={"model": "nothing"})
    assert isinstance(error, UsageError)
    assert "nothing" in error.message
    assert "precision=fp16" in refusal(tmp_path, against={"precision": "fp16"}).message
    assert "is no folder" in refusal(tmp_path, dir="s3://bucket/x").message
    assert "fewer than one global batch" in refusal(tmp_path, train={"global_batch_size": 500}).message
    assert "no Delta table" in refusal(tmp_path, train={"data": {"table": str(tmp_path / "none")}}).message
    assert not (tmp_path / "experiment").exists()


def test_flags_are_short_for_keys_and_faults_are_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text(json.dumps({**config(tmp_path), "against": {}}))
    flags = ["--iterations", "2", "train.epochs=4", "--against", "epochs=9", "--against", "optimizer.learning_rat=1"]
    command = [sys.executable, str(ROOT / JOB), "--config", "e.yaml", *flags]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    wanted = "error: against: unknown key optimizer.learning_rat; did you mean learning_rate?"
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, wanted)
