"""The place of one rank among all ranks, discovered once and passed on."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from dataclasses import dataclass

import torch

from kbit_spark.errors import MissingRequirement


@dataclass(frozen=True)
class World:
    """One rank of `size`.

    Args:
        rank: 0 to size - 1.
        size: number of ranks.
        host: name or address under which the other ranks reach this one.
        threads: CPU threads that this rank may use.
        device: where its model lives.
    """

    rank: int
    size: int
    host: str
    threads: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this rank writes checkpoints and speaks for all."""
        return self.rank == 0

    @property
    def backend(self) -> str:
        """The backend of the process group."""
        return "nccl" if self.device.type == "cuda" else "gloo"


def choose_device(
    wanted: str, gpu: str | None, rank: int, world_size: int, *, one_host: bool, environ: MutableMapping[str, str]
) -> torch.device:
    """Return the rank's device and hide all other GPUs from the process.

    Args:
        wanted: `auto`, `cpu` or `cuda`.
        gpu: address of the GPU that Spark gave to the task, if it gave one.
        rank: the rank.
        world_size: number of ranks.
        one_host: all ranks are threads of a local master, which knows no GPUs: rank n takes the n-th visible one.
        environ: the process environment; CUDA_VISIBLE_DEVICES is set in it. CUDA must not have been used before.

    Raises:
        MissingRequirement: `cuda` is wanted, but there is no GPU for this rank.
    """
    if wanted == "cpu":
        return torch.device("cpu")
    if gpu is None and one_host and torch.cuda.device_count() >= world_size:
        # Counting the devices may have fixed the visible ones, so choose by ordinal and leave the environment alone.
        return torch.device("cuda", rank)
    if gpu is not None:
        environ["CUDA_VISIBLE_DEVICES"] = visible_device(gpu, environ.get("CUDA_VISIBLE_DEVICES"))
        if torch.cuda.is_available():
            return torch.device("cuda", 0)
    if wanted == "cuda":
        given = f"was given GPU {gpu}, but torch cannot use it" if gpu is not None else "was given no GPU"
        msg = f"device=cuda, but rank {rank} {given}"
        raise MissingRequirement(msg, "set spark.executor.resource.gpu.* so that Spark assigns GPUs, or device=cpu")
    return torch.device("cpu")


def visible_device(address: str, visible: str | None) -> str:
    """Return the CUDA_VISIBLE_DEVICES that shows only the GPU at Spark's `address`.

    Addresses are the driver's numbers even where `visible` hides some GPUs; if the address is not among the visible
    ones, it counts within them.
    """
    shown = [entry.strip() for entry in (visible or "").split(",") if entry.strip()]
    if not shown or address in shown:
        return address
    return shown[int(address)] if address.isdigit() and int(address) < len(shown) else address


def cpu_threads(task_cpus: int) -> int:
    """Return the number of CPU threads for a task of `task_cpus` cores: never more than the machine has."""
    return max(1, min(task_cpus, os.cpu_count() or 1))
