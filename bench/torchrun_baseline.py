"""The peer of `bench/train.py`: plain DDP under torchrun, the whole table in memory as tensors before the clock starts.

    torchrun --nproc-per-node 2 bench/torchrun_baseline.py TABLE --model cnn --global-batch 128 --epochs 4 --threads 1

Prints one JSON line: the rows of an epoch over all ranks, and the wall time of each epoch. Same model, optimizer,
precision and batch as the product; no validation, no metrics, no checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from deltalake import DeltaTable
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from kbit_spark.models.registry import build


def main() -> None:
    """Train and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("--model", default="cnn")
    parser.add_argument("--global-batch", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1, help="torch threads of a rank on the CPU")
    parser.add_argument("--precision", choices=["fp32", "bf16", "fp16"], default="fp32")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    arguments = parser.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if not cuda:
        torch.set_num_threads(arguments.threads)
    images, labels = _load(arguments.table, device)
    torch.manual_seed(0)
    model = DistributedDataParallel(build(arguments.model, (28, 28), 10, {}).to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=arguments.learning_rate)
    kind = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[arguments.precision]
    scaler = torch.amp.GradScaler(device.type, enabled=arguments.precision == "fp16")
    local = arguments.global_batch // world
    steps = len(images) // arguments.global_batch
    epoch_s = []
    for epoch in range(arguments.epochs):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch)).to(device)
        _settle(device)
        start = time.perf_counter()
        for step in range(steps):
            first = step * arguments.global_batch + rank * local
            chosen = order[first : first + local]
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device.type, dtype=kind, enabled=kind is not None):
                loss = nn.functional.cross_entropy(model(images[chosen].float().mul_(1 / 255)), labels[chosen])
            torch.autograd.backward(scaler.scale(loss))
            scaler.step(optimizer)
            scaler.update()
        _settle(device)
        epoch_s.append(time.perf_counter() - start)
    if rank == 0:
        sys.stdout.write(json.dumps({"rows": steps * arguments.global_batch, "epoch_s": epoch_s}) + "\n")
    dist.destroy_process_group()


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
