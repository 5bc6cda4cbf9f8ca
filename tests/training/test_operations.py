"""What a whole step on resident rows costs beyond its model, from the batch to the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kbit_spark.config.train import OptimizerConfig
from kbit_spark.models.registry import build
from kbit_spark.training.metrics import HELD_BATCHES
from kbit_spark.training.optimizer import make_optimizer
from tests.fixtures.operations import Operations
from tests.fixtures.samples import IMAGE, write_samples
from tests.training.test_windows import run

BATCH = 10
STEPS = 2 * HELD_BATCHES


def barest(precision: str) -> int:
    """Return the operations of `STEPS` steps of a loop that does nothing but train."""
    model = build("mlp", IMAGE.shape, 10, {})
    optimizer = make_optimizer(model, OptimizerConfig(), torch.device("cpu"))
    inputs, targets = torch.rand(BATCH, *IMAGE.shape), torch.zeros(BATCH, dtype=torch.int64)
    with Operations() as operations:
        for _ in range(STEPS):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                loss = nn.functional.cross_entropy(model(inputs), targets)
            torch.autograd.backward(loss)
            optimizer.step()
    return operations.count


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_step_on_resident_rows_costs_few_operations_beyond_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    table = write_samples(tmp_path / "samples", train=STEPS * BATCH, validation=20, test=20, row_group=64)
    changes: dict[str, Any] = {"data": {"table": table, "resident": True}, "global_batch_size": BATCH}
    changes |= {"precision": precision, "log_every_steps": HELD_BATCHES}
    counts = []
    for epochs in (1, 2):
        with Operations() as operations:
            run(table, tmp_path / str(epochs), 16, monkeypatch, epochs=epochs, **changes)
        counts.append(operations.count)
    beyond = (counts[1] - counts[0] - barest(precision)) / STEPS
    # normalize, argmax, one look for all gradients, which a CPU reads at once; gathers, sums, an epoch's end are shared
    assert beyond <= 4.5
