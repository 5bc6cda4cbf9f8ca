"""What a training job leaves, asked without Spark: the same answers as in the job's own test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from deltalake import DeltaTable

from kbit_spark.errors import RunError
from kbit_spark.telemetry.report import read_events
from kbit_spark.training import checkpoint
from kbit_spark.training.champion import adopt
from kbit_spark.training.trained import load_trained
from tests.fixtures.samples import write_samples
from tests.training.test_barrier import config

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train by one process, without Spark; return the folder."""
    folder = tmp_path_factory.mktemp("trained")
    table = write_samples(folder / "samples", train=200, validation=40, test=40)
    data = {**config(table, folder), "world_size": 1, "strategy": "single", "epochs": 3}
    (folder / "train.yaml").write_text(json.dumps({**data, "telemetry": {"run_dir": str(folder / "runs")}}))
    command = [sys.executable, str(ROOT / "jobs/train_torchrun.py"), "--config", str(folder / "train.yaml")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KBIT_LOG": str(folder / "kbit.log"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert f"weights of {load_trained(folder / 'checkpoints').source.path.name}" in done.stdout
    return folder


def test_the_loaded_model_answers_as_in_the_test_of_the_job(run: Path) -> None:
    (told,) = [
        event.numbers for event in read_events((run / "runs").glob("*/events.jsonl")) if event.kind == "train_test"
    ]
    rows = DeltaTable(str(run / "samples")).to_pyarrow_table(filters=[("_split", "=", "test")])
    images = torch.from_numpy(np.stack([np.frombuffer(v.as_py(), np.uint8).copy() for v in rows["image"]]))
    model = load_trained(run / "checkpoints")
    shape = model.source.manifest.lineage.input_shape
    assert shape is not None
    with torch.no_grad():
        logits = model(images.view(-1, *shape))
    labels = torch.tensor(rows["label"].to_pylist())
    assert float((logits.argmax(1) == labels).double().mean()) == pytest.approx(told["accuracy"])
    assert float(torch.nn.functional.cross_entropy(logits, labels)) == pytest.approx(told["loss"], rel=1e-5)
    assert not model.training


def test_a_folder_a_checkpoint_or_the_model_in_use(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    shutil.copytree(run / "checkpoints", folder)
    newest = checkpoint.newest(folder)
    assert newest is not None
    best = checkpoint.folder(folder, newest.manifest.position.best_step or 0)
    assert load_trained(folder).source.path == best
    assert load_trained(str(newest.path)).source.path == newest.path
    adopt(folder, newest.path, version=0)
    assert load_trained(folder).source.path.parent.name == "champion"


def test_no_checkpoint_or_one_that_does_not_say_enough(run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no checkpoint in"):
        load_trained(tmp_path)
    folder = tmp_path / "step-1"
    shutil.copytree(load_trained(run / "checkpoints").source.path, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["lineage"]["input_shape"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(RunError, match="does not say the shape"):
        load_trained(folder)
