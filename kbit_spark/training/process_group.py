"""The communicator of all ranks, owned by a `with`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # not in its __all__

from kbit_spark.errors import RunError
from kbit_spark.training.world import World

Publish = Callable[[str], list[str]]
"""All ranks call it with one text each and get the texts of all ranks, in the order of ranks."""

COLLECTIVE_TIMEOUT = timedelta(minutes=10)
"""The last resort, in a CUDA graph by `HangWatch`. A dead rank closes its connections, and the driver ends the others,
long before."""


@contextmanager
def process_group(world: World, publish: Publish, timeout_s: float) -> Iterator[None]:
    """Join all ranks; leave in order on success, tear down at once on an exception.

    Rank 0 opens the store on a port that the system chooses and publishes it, so no port is ever guessed.

    Args:
        world: this rank.
        publish: exchanges one text among the ranks.
        timeout_s: how long the ranks may take to meet.

    Raises:
        RunError: some ranks have a GPU, others have none; all of them raise it.
    """
    store = _store(world, publish, timedelta(seconds=timeout_s))
    if world.device.type == "cuda":
        # A collective must end with an error, not wait for ever, where a rank on the same host has died.
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    dist.init_process_group(
        world.backend,
        store=store,
        rank=world.rank,
        world_size=world.size,
        timeout=COLLECTIVE_TIMEOUT,
        device_id=world.device if world.device.type == "cuda" else None,
    )
    try:
        yield
    except BaseException:
        _abort(world)
        raise
    dist.destroy_process_group()


def _store(world: World, publish: Publish, timeout: timedelta) -> TCPStore:
    store = None
    if world.is_first:
        store = TCPStore(world.host, 0, world.size, is_master=True, timeout=timeout, wait_for_workers=False)
    own = {"device": world.device.type, "host": world.host, "port": None if store is None else store.port}
    ranks = [json.loads(text) for text in publish(json.dumps(own))]
    _check_devices([rank["device"] for rank in ranks])
    first = ranks[0]
    return store or TCPStore(
        first["host"], first["port"], world.size, is_master=False, timeout=timeout, wait_for_workers=False
    )


def _check_devices(devices: Sequence[str]) -> None:
    """Check that all ranks have the same kind of device: each has its backend, and they would wait for each other."""
    without = [str(rank) for rank, device in enumerate(devices) if device == "cpu"]
    if 0 < len(without) < len(devices):
        msg = f"rank {', '.join(without)} has no GPU, the others have one"
        hint = "have as many GPUs as ranks (device=cuda says what is wrong with one that is there), or set device=cpu"
        raise RunError(msg, hint)


def _abort(world: World) -> None:
    group = dist.group.WORLD
    if world.device.type == "cuda" and group is not None:
        group.abort()  # ends kernels that wait for a dead rank; destroying would wait for them
    dist.destroy_process_group()
