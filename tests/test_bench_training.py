"""What the training benches are made of: the model, its images, the table of figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from bench.gpu.images import write_images
from bench.gpu.scaling import markdown
from bench.resnet import resnet50
from kbit_spark.tables.snapshot import resolve


def test_a_resnet_50_has_its_size_and_takes_images_with_channels_last() -> None:
    model = resnet50((32, 32, 3), 10)
    assert sum(parameter.numel() for parameter in model.parameters()) == 23_520_842
    assert resnet50((32, 32, 3), 10, width=8)(torch.rand(2, 32, 32, 3)).shape == (2, 10)


def test_images_are_a_table_to_train_on(tmp_path: Path) -> None:
    write_images(tmp_path / "images", (32, 32, 3), 50_000)
    snapshot = resolve(str(tmp_path / "images"))
    assert snapshot.rows("train") == 50_000
    assert snapshot.tensors["image"].shape == (32, 32, 3)


def line(precision: str, ranks: int, side: str, speed: float | None) -> dict[str, Any]:
    figures = {"error": "Traceback\nout of memory"} if speed is None else {"samples_per_s": speed}
    run = {"model": "cnn", "precision": precision, "ranks": ranks, "side": side, "batch": 64, "device": "H100"}
    return {**run, **figures}


def test_targets_that_are_missed_are_marked_and_faults_named() -> None:
    lines = [
        line("fp32", 1, "torchrun", 100.0), line("fp32", 1, "product", 99.0),
        line("fp32", 2, "torchrun", 200.0), line("fp32", 2, "product", 195.0),
        line("bf16", 1, "torchrun", None), line("bf16", 1, "product", 150.0),
    ]  # fmt: skip
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in markdown(lines).splitlines() if "cnn |" in row]
    assert rows[0][5:] == ["0.990", "", "", ""]
    assert rows[1][5:] == ["0.975 MISSED", "0.985 MISSED", "1.000", ""]
    assert rows[2][3:] == ["", "150", "", "", "", "1.515 MISSED"]
    assert "out of memory" in markdown(lines).splitlines()[-1]
