"""How ranks meet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from kbit_spark.errors import RunError
from kbit_spark.training.process_group import process_group
from kbit_spark.training.world import World

CPU = torch.device("cpu")


@pytest.mark.parametrize("rank", range(4))
@pytest.mark.parametrize(("gpus", "without"), [((0, 1), "2, 3"), ((1, 2, 3), "0")])
def test_all_ranks_end_at_once_where_some_have_a_gpu_and_others_none(
    rank: int, gpus: tuple[int, ...], without: str
) -> None:
    devices = ["cuda" if each in gpus else "cpu" for each in range(4)]

    def publish(text: str) -> list[str]:
        others = [{"device": device, "host": "127.0.0.1", "port": 1} for device in devices]
        return [text if each == rank else json.dumps(others[each]) for each in range(4)]

    world = World(rank, 4, "127.0.0.1", 1, torch.device(devices[rank]))
    message = rf"rank {without} has no GPU, the others have one \(have as many"
    with pytest.raises(RunError, match=message), process_group(world, publish, 1.0):
        pass


def _sum(rank: int, folder: str) -> None:
    texts = dist.FileStore(f"{folder}/store", 3)

    def publish(text: str) -> list[str]:
        texts.set(str(rank), text)
        return [texts.get(str(each)).decode() for each in range(3)]

    with process_group(World(rank, 3, "127.0.0.1", 1, CPU), publish, 30.0):
        total = torch.tensor(rank + 1)
        dist.all_reduce(total)
    assert total == 6
    assert not dist.is_initialized()


def test_ranks_meet_and_leave(tmp_path: Path) -> None:
    spawn(_sum, (str(tmp_path),), nprocs=3)  # type: ignore[no-untyped-call]
