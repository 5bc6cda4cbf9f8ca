"""The peer of `bench/train.py` and `bench/gpu/scaling.py`: plain DDP under torchrun.

    torchrun --nproc-per-node 2 bench/torchrun_baseline.py --table TABLE --global-batch 128 --epochs 4 --threads 1
    torchrun --nproc-per-node 4 bench/torchrun_baseline.py --synthetic 28 28 --steps 400 --global-batch 8192

All rows of the table are in memory before the clock starts; synthetic rows are a few batches of ready-made floats on
the device, so that a step costs only the model. Prints one JSON line: the rows of an epoch over all ranks, and the wall
time of each epoch. Same model, optimizer, DDP, precision and batch as the product; no validation, no metrics, no
checkpoint, no look at whether the loss is finite.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import numpy as np
import torch
import torch.distributed as dist
from deltalake import DeltaTable
from torch import nn

from kbit_spark.config.train import OptimizerConfig
from kbit_spark.models.registry import build
from kbit_spark.training.ddp import data_parallel
from kbit_spark.training.optimizer import make_optimizer

SYNTHETIC_BATCHES = 4

Batches = Callable[[int], Iterator[tuple[torch.Tensor, torch.Tensor]]]
"""Yields this rank's batches of the epoch with that number: floats of shape (rows, *input shape), targets (rows,)."""


def main() -> None:
    """Train and report."""
    arguments = _arguments()
    cuda = arguments.device != "cpu" and torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(arguments.threads)
    dist.init_process_group("nccl" if cuda else "gloo", device_id=device if cuda else None)
    if arguments.table is None:
        shape, steps, batches = _synthetic(arguments, device)
    else:
        shape, steps, batches = _table(arguments, device)
    torch.manual_seed(0)
    bare = build(arguments.model, shape, 10, json.loads(arguments.model_options)).to(device)
    optimizer = make_optimizer(bare, OptimizerConfig(learning_rate=arguments.learning_rate), device)
    model = data_parallel(bare, device)
    kind = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[arguments.precision]
    scaler = torch.amp.GradScaler(device.type, enabled=arguments.precision == "fp16")
    epoch_s = []
    for epoch in range(arguments.epochs):
        epoch_batches = batches(epoch)
        _settle(device)
        start = time.perf_counter()
        for inputs, targets in epoch_batches:
            optimizer.zero_grad(set_to_none=True)
            with nullcontext() if kind is None else torch.autocast(device.type, dtype=kind):
                loss = nn.functional.cross_entropy(model(inputs), targets)
            torch.autograd.backward(scaler.scale(loss))
            scaler.step(optimizer)
            scaler.update()
        _settle(device)
        epoch_s.append(time.perf_counter() - start)
    if dist.get_rank() == 0:
        sys.stdout.write(json.dumps({"rows": steps * arguments.global_batch, "epoch_s": epoch_s}) + "\n")
    dist.destroy_process_group()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = parser.add_mutually_exclusive_group(required=True)
    data.add_argument("--table")
    data.add_argument("--synthetic", type=int, nargs="+", metavar="SIZE", help="the shape of one input")
    parser.add_argument("--steps", type=int, default=100, help="of an epoch of synthetic rows")
    parser.add_argument("--model", default="cnn")
    parser.add_argument("--model-options", default="{}", help="JSON")
    parser.add_argument("--global-batch", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1, help="torch threads of a rank on the CPU")
    parser.add_argument("--precision", choices=["fp32", "bf16", "fp16"], default="fp32")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    return parser.parse_args()


def _synthetic(arguments: argparse.Namespace, device: torch.device) -> tuple[tuple[int, ...], int, Batches]:
    shape = tuple(arguments.synthetic)
    local = arguments.global_batch // dist.get_world_size()
    random = torch.Generator(device).manual_seed(dist.get_rank())
    made = [
        (
            torch.rand((local, *shape), generator=random, device=device),
            torch.randint(10, (local,), generator=random, device=device),
        )
        for _ in range(SYNTHETIC_BATCHES)
    ]
    return shape, arguments.steps, lambda _: (made[step % len(made)] for step in range(arguments.steps))


def _table(arguments: argparse.Namespace, device: torch.device) -> tuple[tuple[int, ...], int, Batches]:
    images, labels = _load(arguments.table, device)
    rank, size = dist.get_rank(), arguments.global_batch
    local = size // dist.get_world_size()
    steps = len(images) // size

    def batches(epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch)).to(device)
        starts = (step * size + rank * local for step in range(steps))
        chosen = (order[start : start + local] for start in starts)
        return ((images[rows].float().mul_(1 / 255), labels[rows]) for rows in chosen)

    return tuple(images.shape[1:]), steps, batches


def _load(table: str, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    rows = DeltaTable(table).to_pyarrow_table(partitions=[("_split", "=", "train")], columns=["image", "label"])
    images = np.stack([np.frombuffer(image, dtype=np.uint8) for image in rows["image"].to_pylist()])
    labels = rows["label"].to_numpy().astype(np.int64)
    return torch.from_numpy(images.reshape(-1, 28, 28)).to(device), torch.from_numpy(labels).to(device)


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    dist.barrier()


if __name__ == "__main__":
    main()
