"""A training step by itself: one batch that stays in place, no loader, no Spark; how it is taken, set by set.

    python -m bench.gpu.steps --out FILE --models cnn resnet50 --ranks 1 2 '{"all_reduce": "at_once"}' '{"all_reduce": "overlapped"}'

A set is keys of the training configuration. Every case is a run of processes of its own, one a rank: what a process did
before can cost its steps 1 % (docs/decisions/0021). Compare cases of one call only; GPUs of one kind differ by 0.3 %.
"""  # noqa: E501 - a command is one line

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from bench.gpu.scaling import ENVIRONMENT, MODELS, Model
from kbit_spark.config.train import TrainConfig
from kbit_spark.datasets.batches import Batch
from kbit_spark.models.registry import build
from kbit_spark.training.metrics import Sums
from kbit_spark.training.stepper import Stepper
from kbit_spark.training.world import World

WARM_UP_STEPS = 30
"""The first ones are launched kernel by kernel, then comes the capture."""

WINDOWS = 3
WINDOW_STEPS = {"cnn": 500, "resnet50": 50}
TOTAL_STEPS = 100_000
"""Of the run that the steps pretend to be part of: long enough to be captured."""


def main() -> None:
    """Measure every case in turn; a line of JSON each, as it ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=["{}"], help="keys of the configuration, as JSON")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--second-stream", action="store_true", help="copy something by another stream beforehand")
    parser.add_argument("--cpu", action="store_true", help="try the bench itself out where there is no GPU")
    arguments = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    for model in arguments.models:
        for ranks in arguments.ranks:
            for changes in map(json.loads, arguments.sets):
                line = measured(MODELS[model], ranks, {"precision": arguments.precision, **changes}, arguments)
                with arguments.out.open("a") as lines:
                    lines.write(json.dumps(line) + "\n")
                print(json.dumps(line), flush=True)


def measured(model: Model, ranks: int, changes: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the case and its `step_ms` on the first rank: means of windows."""
    with tempfile.TemporaryDirectory(prefix="kbit-steps-") as folder:
        spawn(_rank, (ranks, model, changes, folder, arguments), nprocs=ranks)  # type: ignore[no-untyped-call]
        found: dict[str, Any] = json.loads((Path(folder) / "found").read_text())
    return {"model": model.name, "ranks": ranks, **changes, "second_stream": arguments.second_stream, **found}


def _rank(
    rank: int, size: int, model: Model, changes: dict[str, Any], folder: str, arguments: argparse.Namespace
) -> None:
    """Take the steps of one rank."""
    device = torch.device("cpu") if arguments.cpu else torch.device("cuda", rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.cuda.set_stream(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
    world = World(rank, size, "localhost", 1, device)
    dist.init_process_group(
        world.backend,
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=size,
        device_id=None if arguments.cpu else device,
    )
    if arguments.second_stream:
        _use_second_stream(device)
    stepper, batch = _prepared(model, world, changes, rows=2 if arguments.cpu else None)
    sums = Sums(device)
    steps = 1 if arguments.cpu else WINDOW_STEPS[model.name]
    _take(stepper, batch, sums, WARM_UP_STEPS // (10 if arguments.cpu else 1))
    step_ms = []
    for _ in range(WINDOWS):
        dist.barrier()
        began = time.perf_counter()
        _take(stepper, batch, sums, steps)
        step_ms.append(round((time.perf_counter() - began) / steps * 1e3, 4))
    if rank == 0:
        name = "CPU" if arguments.cpu else torch.cuda.get_device_name(device)
        (Path(folder) / "found").write_text(json.dumps({"device": name, "step_ms": step_ms}))
    stepper.close()
    dist.destroy_process_group()


def _prepared(model: Model, world: World, changes: dict[str, Any], rows: int | None) -> tuple[Stepper, Batch]:
    """Return a stepper, and random rows of this rank."""
    rows = rows or model.batch
    config = TrainConfig.model_validate(
        {
            "data": {"table": "none"},
            "checkpoint": {"dir": "none"},
            "world_size": world.size,
            "global_batch_size": rows * world.size,
            **changes,
        }
    )
    torch.manual_seed(world.rank)
    network = build(model.factory, model.shape, 10, model.options).to(world.device)
    inputs = torch.randint(256, (rows, *model.shape), device=world.device, dtype=torch.uint8)
    targets = torch.randint(10, (rows,), device=world.device)
    return Stepper(network, config, world, TOTAL_STEPS), Batch(inputs, targets)


def _take(stepper: Stepper, batch: Batch, sums: Sums, steps: int) -> None:
    """Take steps and wait for the device."""
    for _ in range(steps):
        stepper.accumulate(batch, sums, group=1, last=True)
    if batch.targets.is_cuda:
        torch.cuda.synchronize()


def _use_second_stream(device: torch.device) -> None:
    side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        there = torch.empty(2**20, pin_memory=True).to(device, non_blocking=True)
    torch.cuda.current_stream().wait_stream(side)
    there.sum().item()


if __name__ == "__main__":
    main()
