"""Launches the ranks of one attempt, in a barrier stage's own processes or by TorchDistributor, and watches them."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from typing import Any

from pyspark import BarrierTaskContext, InheritableThread, SparkContext
from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

from kbit_spark.config.train import TrainConfig
from kbit_spark.errors import KbitError, RunError, UsageError
from kbit_spark.training.control import Control
from kbit_spark.training.job import Outcome, TrainJob
from kbit_spark.training.slots import check_gpus, check_slots, gpu_amount, is_local

GRACE_S = 5.0
"""How long the other ranks may take to notice by themselves that one is gone."""


def launch(sc: SparkContext, job: TrainJob, control: Control) -> Outcome | None:
    """Run one attempt; return rank 0's outcome, or None if any rank failed (`control` then knows which and why).

    On return, and on any exception, no rank of the attempt runs any more.

    Raises:
        UsageError: dynamic allocation is on, or the launcher or the master cannot give the ranks what they ask for.
        MissingRequirement: the ranks must have GPUs, and there are none for them.
        RunError: there are fewer slots than ranks, or someone cancelled the job.
    """
    if job.config.launcher == "torch_distributor" and job.config.cpus_per_rank is not None:
        msg = "TorchDistributor cannot ask for cpus_per_rank"
        raise UsageError(msg, "set spark.task.cpus for the application, or launcher=barrier")
    check_gpus(sc, job.config)
    size, by_distributor = job.config.world_size, job.config.launcher == "torch_distributor"
    profile = None if by_distributor else _profile(sc, job.config)
    check_slots(sc, size, profile)
    results = _Results()
    group = f"kbit-train-{job.token[:8]}-{job.attempt}"

    def collect() -> None:
        sc.setJobGroup(group, f"train, attempt {job.attempt}", interruptOnCancel=True)
        sc.setLocalProperty("kbit.scope", f"attempt={job.attempt}")
        try:
            results.outcomes = _run_by_distributor(sc, job) if by_distributor else _run_in_tasks(sc, job, profile)
        except Exception as error:  # mostly Spark's failure of a stage; what it means stands in `control`
            results.error = error

    thread = InheritableThread(target=collect, name="kbit-barrier", daemon=True)
    thread.start()
    try:
        results.ended = _watch(sc, thread, control, group)
        if results.is_unexplained():  # Spark may know of a lost executor before its rank's connection closes
            control.await_fault(GRACE_S)
    finally:
        if thread.is_alive():
            sc.cancelJobGroup(group)
        control.stop_ranks()
        thread.join(timeout=10)
    return results.outcome(size, control)


class _Results:
    def __init__(self) -> None:
        self.outcomes: list[Outcome | None] = []
        self.error: Exception | None = None
        self.ended = False

    def is_unexplained(self) -> bool:
        return self.error is not None and not isinstance(self.error, KbitError) and not self._is_cancelled()

    def _is_cancelled(self) -> bool:
        return not self.ended and re.search(r"[Jj]ob \S+ cancelled", str(self.error)) is not None

    def outcome(self, size: int, control: Control) -> Outcome | None:
        if isinstance(self.error, KbitError):
            raise self.error
        if self._is_cancelled():
            msg = "the training job was cancelled"
            raise RunError(msg, "start it again to go on from the last checkpoint")
        if self.error is not None and not control.faulty():
            reason = str(self.error).partition("Most recent failure reason:")[2] or str(self.error)
            control.stage_failure = " ".join(reason.split())[:300]
        if self.error is not None or len(self.outcomes) < size or None in self.outcomes:
            return None
        return self.outcomes[0]


def _watch(sc: SparkContext, thread: threading.Thread, control: Control, group: str) -> bool:
    """Wait for the stage; once a rank failed, give the others a moment, then end them. Return whether that was needed.

    A rank that is silent gets no moment: it had its time, and Spark kills even a stopped process.
    """
    since: float | None = None
    while thread.is_alive():
        thread.join(timeout=0.2)
        faulty = control.faulty()
        if since is None and faulty:
            since = time.monotonic()
        if since is not None and (time.monotonic() - since > GRACE_S or any(state.silent for state in faulty)):
            sc.cancelJobGroup(group)
            control.stop_ranks()
            thread.join(timeout=GRACE_S)
            return True
    return False


def _run_by_distributor(sc: SparkContext, job: TrainJob) -> list[Outcome | None]:
    from kbit_spark.training.distributor import run_by_distributor  # it imports pyspark.ml, which others can spare

    return run_by_distributor(sc, job)


def _run_in_tasks(sc: SparkContext, job: TrainJob, profile: Any) -> list[Outcome | None]:
    rdd = sc.parallelize(range(job.config.world_size), job.config.world_size)
    if profile is not None:
        rdd = rdd.withResources(profile)
    outcomes: list[Outcome | None] = rdd.barrier().mapPartitions(_rank_of(job)).collect()
    return outcomes


def _rank_of(job: TrainJob) -> Any:
    def run(_: Iterator[int]) -> Iterator[Outcome | None]:
        from kbit_spark.training.rank import Task, heed_signals, run_rank  # torch is loaded where the rank runs

        heed_signals()
        context = BarrierTaskContext.get()
        addresses = [info.address for info in context.getTaskInfos()]
        gpu = context.resources().get("gpu")
        task = Task(
            rank=context.partitionId(),
            size=len(addresses),
            host=addresses[context.partitionId()].rpartition(":")[0] or addresses[context.partitionId()],
            cpus=context.cpus(),
            gpu=gpu.addresses[0] if gpu is not None else None,
        )
        yield run_rank(job, task, context.allGather)

    return run


def _profile(sc: SparkContext, config: TrainConfig) -> Any:
    """Return what the stage's tasks ask for (stage-level scheduling), None where the application's own settings do.

    Raises:
        UsageError: a local master has no resource profiles.
    """
    own = int(sc.getConf().get("spark.task.cpus", "1") or 1)
    cpus = config.cpus_per_rank or own
    gpus = config.device != "cpu" and gpu_amount(sc, "executor") > 0
    asked = gpu_amount(sc, "task") > 0
    local = is_local(sc.master)
    if local and cpus != own:
        msg = f"cpus_per_rank={cpus} needs a cluster: the master {sc.master} has no resource profiles"
        raise UsageError(msg, f"start the application with spark.task.cpus={cpus}")
    if local or (cpus == own and (asked or not gpus)):
        return None
    requests = TaskResourceRequests().cpus(cpus)
    return ResourceProfileBuilder().require(requests.resource("gpu", 1) if gpus else requests).build
