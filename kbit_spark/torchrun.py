"""The training job under plain torchrun, without Spark: the first rank does the driver's work beside its own."""

from __future__ import annotations

import base64
import os
import pickle
from contextlib import suppress

import torch.distributed as dist

from kbit_spark.config.load import dump
from kbit_spark.config.train import TrainConfig
from kbit_spark.errors import RunError
from kbit_spark.telemetry.hub import Telemetry
from kbit_spark.train import checkpoint_dir, plan, resume_event
from kbit_spark.training.control import Control
from kbit_spark.training.environment import Board, die_with_parent, restart_count, task_from
from kbit_spark.training.job import Outcome, TrainJob
from kbit_spark.training.rank import Task, run_rank
from kbit_spark.training.restarts import verdict
from kbit_spark.version import code_version

GRACE_S = 5.0
"""How long ranks wait for each other at the end, where some may be gone."""


def run(config: TrainConfig) -> None:
    """Train as the rank that torchrun made this process; torchrun's world size counts, not the configuration's.

    torchrun ends the other ranks when one is gone, and starts all again from the last checkpoint (``--max-restarts``).
    There is no metrics table: Spark writes it.

    Raises:
        KbitError: the rank failed, or on the first rank any of them; see `plan` and `verdict`.
    """
    die_with_parent()
    task = task_from(os.environ)
    board = Board(task, restart_count(os.environ), config.rendezvous_timeout_s)
    config = TrainConfig.model_validate({**config.model_dump(), "world_size": task.size})
    if task.rank == 0:
        try:
            _lead(config, task, board)
        finally:
            _meet(board)  # the others stay until all is told: torchrun ends every rank when the first one leaves
        return
    _follow(task, board)


def _lead(config: TrainConfig, task: Task, board: Board) -> Outcome:
    snapshot, resume = plan(config)
    local = task.host in ("127.0.0.1", "localhost")
    with (
        Telemetry.open(config.telemetry, "train", config_text=dump(config)) as telemetry,
        Control("127.0.0.1" if local else "", telemetry.emit) as control,
    ):
        if resume is not None:
            telemetry.emit(resume_event(resume))
        path, code = None if resume is None else resume.path, code_version()
        address = (task.host, control.port)
        job = TrainJob(config, snapshot, checkpoint_dir(config), path, 0, address, control.token, code, one_host=False)
        board.publish(base64.b64encode(pickle.dumps(job)).decode())
        outcome = run_rank(job, task, board.publish)
        _meet(board)
        if outcome is None or control.faulty():
            raise verdict(control)
        return outcome


def _follow(task: Task, board: Board) -> None:
    job = board.publish("")[0]
    outcome = run_rank(pickle.loads(base64.b64decode(job)), task, board.publish) if job else None
    _meet(board)
    _meet(board)
    if outcome is None:
        msg = f"rank {task.rank} failed"
        raise RunError(msg, "the first rank and the log tell why")


def _meet(board: Board) -> None:
    with suppress(dist.DistError):
        board.publish("", GRACE_S)
