"""What a barrier task does: find its device, join the others, train, and tell the driver how it went."""

from __future__ import annotations

import logging
import os
import signal
import traceback
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist

from kbit_spark.errors import KbitError
from kbit_spark.training.channel import Client
from kbit_spark.training.job import Outcome, TrainJob
from kbit_spark.training.loop import Trainer
from kbit_spark.training.metrics import EchoError
from kbit_spark.training.process_group import Publish, process_group
from kbit_spark.training.reporter import Reporter
from kbit_spark.training.world import World, choose_device, cpu_threads

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """What Spark says about a barrier task: `gpu` is the address of its GPU, None where it was given none."""

    rank: int
    size: int
    host: str
    cpus: int
    gpu: str | None


def heed_signals() -> None:
    """Let this process die when it is told to; Spark starts workers that ignore it."""
    for name in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(name, signal.SIG_DFL)


def run_rank(job: TrainJob, task: Task, publish: Publish) -> Outcome | None:
    """Run one rank; return the outcome, or None where it failed: the driver has heard why, or sees the others fail.

    A fault ends the task without an exception, so that Spark prints no stack trace; it goes to the driver's log.
    """
    client = Client(job.address, job.token, task.rank, job.attempt)
    handler = _forward_log(client)
    try:
        return _train(job, task, publish, client)
    except Exception as error:
        log.error(str(error) if isinstance(error, KbitError) else traceback.format_exc().rstrip())
        client.fail(error, by_peer=_by_peer(error))
        return None
    finally:
        logging.getLogger("kbit_spark").removeHandler(handler)
        client.close()


def _train(job: TrainJob, task: Task, publish: Publish, client: Client) -> Outcome:
    device = choose_device(job.config.device, task.gpu, task.rank, task.size, one_host=job.one_host, environ=os.environ)
    world = World(task.rank, task.size, task.host, cpu_threads(task.cpus), device)
    torch.set_num_threads(world.threads)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.cuda.set_stream(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]  # the default one has no graphs
    client.log(f"rank {world.rank} of {world.size} on {world.host}, {world.device}, {world.threads} threads")
    alone = job.config.strategy == "single"
    with nullcontext() if alone else process_group(world, publish, job.config.rendezvous_timeout_s):
        return Trainer(job, world, Reporter(client, world)).fit()


def _by_peer(error: Exception) -> bool:
    return isinstance(error, dist.DistError | EchoError) or any(
        name in str(error).lower() for name in ("gloo", "nccl", "peer")
    )


def _forward_log(client: Client) -> logging.Handler:
    class Forward(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            client.log(self.format(record))

    handler, logger = Forward(logging.INFO), logging.getLogger("kbit_spark")
    logger.addHandler(handler)
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)
    return handler
