"""The training job under plain torchrun, without Spark: the first rank does the driver's work beside its own."""

from __future__ import annotations

import base64
import os
import pickle
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch.distributed as dist

from kbit_spark.config.load import dump, validate
from kbit_spark.config.train import TrainConfig
from kbit_spark.entry import report
from kbit_spark.errors import RunError, UsageError
from kbit_spark.telemetry.hub import Telemetry
from kbit_spark.train import check, checkpoint_dir, plan, resume_event
from kbit_spark.training.control import Control
from kbit_spark.training.environment import Board, die_with_parent, restart_count, task_from
from kbit_spark.training.job import TrainJob
from kbit_spark.training.lock import alone_in
from kbit_spark.training.rank import Task, run_rank
from kbit_spark.training.restarts import verdict
from kbit_spark.version import code_version

END_S = 5.0
"""How long ranks wait for each other at the end, where some may be gone."""

SETTLE_S = 1.0
"""How long a fault may take to show on the first rank by itself, and all that is known of it to arrive."""


def run(config: TrainConfig) -> None:
    """Train as the rank that torchrun made this process; torchrun's world size counts, not the configuration's.

    torchrun ends the other ranks when one is gone, and starts all again from the last checkpoint (``--max-restarts``).
    There is no metrics table: Spark writes it.

    Raises:
        KbitError: this rank failed, or on the first rank any of them; see `for_all`, `plan` and `verdict`.
    """
    die_with_parent()
    task = task_from(os.environ)
    board = Board(task, restart_count(os.environ), config.rendezvous_timeout_s)
    if task.rank == 0:
        config = for_all(config, task.size)
        with alone_in(checkpoint_dir(config), "checkpoint.dir"):
            _lead(config, task, board)
    else:
        _follow(task, board)
    _meet(board)  # all stay until all is told: torchrun ends the others when one of them fails


def for_all(config: TrainConfig, size: int) -> TrainConfig:
    """Return the configuration of `size` ranks.

    Raises:
        UsageError: it does not fit so many, or not torchrun.
    """
    check(config)
    if config.follow.enabled:
        msg = "follow.enabled: torchrun trains once, on one version of the table"
        raise UsageError(msg, "start jobs/train_barrier.py to follow it, or set follow.enabled=false")
    return validate(TrainConfig, {**config.model_dump(), "world_size": size}, f"torchrun with {size} processes")


def _lead(config: TrainConfig, task: Task, board: Board) -> None:
    snapshot, resume = plan(config)
    local = task.host in ("127.0.0.1", "localhost")
    with (
        Telemetry.open(config.telemetry, "train", config_text=dump(config)) as telemetry,
        Control("127.0.0.1" if local else "", telemetry.emit, config.heartbeat_timeout_s) as control,
        _ending_with_the_others(control, telemetry),
    ):
        if resume is not None:
            telemetry.emit(resume_event(resume, config))
        path, code = None if resume is None else resume.path, code_version()
        address = (task.host, control.port)
        job = TrainJob(config, snapshot, checkpoint_dir(config), path, 0, address, control.token, code, one_host=False)
        board.publish(base64.b64encode(pickle.dumps(job)).decode())
        if run_rank(job, task, board.publish) is None:
            control.await_fault(SETTLE_S)
            raise verdict(control)
        _meet(board)


def _follow(task: Task, board: Board) -> None:
    job: TrainJob = pickle.loads(base64.b64decode(board.publish("")[0]))
    outcome = run_rank(job, task, board.publish)
    _meet(board)
    if outcome is None:
        msg = f"rank {task.rank} failed"
        raise RunError(msg, "the first rank and the log tell why")


@contextmanager
def _ending_with_the_others(control: Control, telemetry: Telemetry) -> Iterator[None]:
    """End this process when a rank is lost, even while the main thread waits for that rank in a collective.

    SIGTERM, by which torchrun ends the ranks that are left, no longer ends this one: the reason must be told first.
    """
    done, (told, tell) = threading.Event(), socket.socketpair()
    told.settimeout(0.1)
    tell.setblocking(False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.set_wakeup_fd(tell.fileno())  # written to at once, whatever the main thread does
    thread = threading.Thread(target=_watch, args=(done, told, control, telemetry), name="kbit-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        signal.set_wakeup_fd(-1)  # torchrun may still end this rank because of another one
        told.close()
        tell.close()


def _watch(done: threading.Event, told: socket.socket, control: Control, telemetry: Telemetry) -> None:
    while not done.is_set():
        ending = _signalled(told)
        if not (ending or control.faulty()) or (not ending and done.wait(SETTLE_S)):
            continue
        ended = RunError("ended by SIGTERM", "start again to go on from the last checkpoint")
        error = verdict(control) if control.faulty() else ended
        telemetry.close(f"{type(error).__name__}: {error.message}")
        report(error)
        os._exit(error.exit_code)


def _signalled(told: socket.socket) -> bool:
    try:
        return signal.SIGTERM in told.recv(16)
    except TimeoutError:
        return False


def _meet(board: Board) -> None:
    with suppress(dist.DistError):
        board.publish("", END_S)
