"""Refuses what a barrier stage would wait for in vain, or end with: too little room in the cluster, no GPUs."""

from __future__ import annotations

import re
import time
from typing import Any, Literal

import torch
from py4j.protocol import Py4JError
from pyspark import SparkContext

from kbit_spark.config.train import TrainConfig
from kbit_spark.errors import MissingRequirement, RunError, UsageError

WAIT_S = 20.0
"""How long executors may take to register with a standalone or other cluster master."""

Profile = Any


def is_local(master: str | None) -> bool:
    """Tell whether the ranks are processes of a local master, which knows neither resource profiles nor GPUs."""
    return re.match(r"local(\[|$)", master or "") is not None


def gpu_amount(sc: SparkContext, of: Literal["executor", "task"]) -> float:
    """Return how many GPUs the application's settings give to each executor, or to each task."""
    return float(sc.getConf().get(f"spark.{of}.resource.gpu.amount", "0") or 0)


def check_gpus(sc: SparkContext, config: TrainConfig) -> None:
    """Make sure that ranks that must have a GPU can get one.

    Raises:
        MissingRequirement: Spark has none to give them, or this machine has too few for a local master's.
    """
    if config.device != "cuda":
        return
    if is_local(sc.master):
        if (there := torch.cuda.device_count()) < config.world_size:
            msg = f"device=cuda, but torch finds {there} GPUs on this machine for world_size={config.world_size}"
            raise MissingRequirement(msg, "set device=cpu or auto, or a world_size that they are enough for")
    elif not (gpu_amount(sc, "executor") or gpu_amount(sc, "task")):
        msg = "device=cuda, but Spark has no GPUs to give to the ranks"
        raise MissingRequirement(msg, "set spark.executor.resource.gpu.* so that it assigns them, or device=cpu")


def check_slots(sc: SparkContext, world_size: int, profile: Profile = None, wait_s: float = WAIT_S) -> None:
    """Return once `world_size` tasks can run at the same time.

    Raises:
        UsageError: dynamic allocation is on, which barrier stages do not allow.
        RunError: there are too few slots; at once where the master's own text says so, else after `wait_s`.
    """
    conf = sc.getConf()
    if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        msg = (
            "training cannot run with dynamic allocation: its ranks must all run at once, and Spark refuses that there"
        )
        raise UsageError(msg, "set spark.dynamicAllocation.enabled=false and spark.executor.instances (SPARK-24942)")
    cpus = int(conf.get("spark.task.cpus", "1") or 1) if profile is None else int(profile.taskResources["cpus"].amount)
    limit = _static_slots(sc.master or "", cpus)
    if limit is not None and limit < world_size:
        raise _too_few(sc, world_size, limit, cpus)
    deadline = time.monotonic() + wait_s
    while (slots := _slots(sc, profile)) is not None and slots < world_size:
        if time.monotonic() > deadline:
            raise _too_few(sc, world_size, slots, cpus)
        time.sleep(0.2)


def _static_slots(master: str, cpus: int) -> int | None:
    """Return the slots that the master's text promises, None where it does not tell."""
    if match := re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]", master):
        return int(match[1]) * (int(match[2]) // cpus)
    if master == "local":
        return 1 // cpus
    if match := re.fullmatch(r"local\[\s*(\d+)(?:\s*,\s*\d+)?\s*\]", master):
        return int(match[1]) // cpus
    return None


def _slots(sc: SparkContext, profile: Profile) -> int | None:
    """Ask Spark's scheduler, as its own check of barrier stages does; None where Py4J may not."""
    try:
        scala: Any = sc._jsc.sc()
        manager = scala.resourceProfileManager()
        java_profile = profile._java_resource_profile if profile is not None else manager.defaultResourceProfile()
        manager.addResourceProfile(java_profile)  # an unknown one has no slots that could be asked for
        return int(scala.maxNumConcurrentTasks(java_profile))
    except (Py4JError, AttributeError, TypeError):
        return None


def _too_few(sc: SparkContext, world_size: int, slots: int, cpus: int) -> RunError:
    conf = sc.getConf()
    cores = conf.get("spark.executor.cores", None)
    detail = f"master {sc.master}, {cpus} cores a rank" + (f", spark.executor.cores={cores}" if cores else "")
    msg = f"world_size={world_size} needs {world_size} slots at the same time, but there are {slots} ({detail})"
    return RunError(msg, f"set world_size={max(1, slots)}, or start more executors or cores")
