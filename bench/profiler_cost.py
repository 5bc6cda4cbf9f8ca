"""What the profiler costs a step: blocks of steps with it and without it, in turn, in the same processes.

    torchrun --nproc-per-node 2 bench/profiler_cost.py [--pairs 300] [--model cnn]

Two runs of a whole job differ by more than the profiler costs. Prints one JSON line: the median over the pairs of how
much longer the block with it took, and the error of that median.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from math import sqrt
from pathlib import Path
from statistics import median, stdev

import torch
import torch.distributed as dist

from kbit_spark.config.train import TrainConfig
from kbit_spark.datasets.batches import Batch
from kbit_spark.models.registry import build
from kbit_spark.training.metrics import Sums
from kbit_spark.training.profiler import Profiler
from kbit_spark.training.stepper import Stepper
from kbit_spark.training.world import World

BATCH = 128
WARM_UP = 40


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--steps", type=int, default=10, help="of a block")
    parser.add_argument("--model", default="cnn")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    with_it, without = (_stepping(arguments.model, phases=phases) for phases in (True, False))
    for side in (with_it, without):
        _block_s(side, WARM_UP)
    costs = []
    for pair in range(arguments.pairs):
        order = (with_it, without) if pair % 2 else (without, with_it)
        spent = {side: _block_s(side, arguments.steps) for side in order}
        costs.append(spent[with_it] / spent[without] - 1)
    if dist.get_rank() == 0:
        error = 1.25 * stdev(costs) / sqrt(len(costs))  # of a median, where the values are about normal
        sys.stdout.write(json.dumps({"cost": median(costs), "error": error}) + "\n")
    dist.destroy_process_group()


def _stepping(model: str, *, phases: bool) -> Callable[[int], None]:
    """Return a function that trains one step of the product's loop, whose number it is given."""
    rank, size, device = dist.get_rank(), dist.get_world_size(), torch.device("cpu")
    config = TrainConfig.model_validate(
        {
            "data": {"table": "none"},
            "model": model,
            "world_size": size,
            "global_batch_size": BATCH,
            "profile": {"phases": phases},
            "checkpoint": {"dir": "none"},
        }
    )
    world = World(rank, size, "127.0.0.1", 1, device)
    profiler = Profiler(config.profile, world, Path(tempfile.gettempdir()))
    torch.manual_seed(0)
    stepper, sums = Stepper(build(model, (28, 28), 10, {}), config, world, 1, profiler), Sums(device)
    local = BATCH // size
    images = torch.randint(256, (local, 28, 28), dtype=torch.uint8)
    batch = Batch(images, torch.randint(10, (local,)))

    def step(number: int) -> None:
        profiler.begin_step(number)
        profiler.mark("data_wait")
        profiler.mark("host_to_device")
        stepper.accumulate(batch, sums, group=1, last=True)
        profiler.end_step(number)

    return step


def _block_s(step: Callable[[int], None], steps: int) -> float:
    dist.barrier()
    began = time.perf_counter()
    for number in range(1, steps + 1):
        step(number)
    dist.barrier()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
