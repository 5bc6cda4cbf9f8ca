"""The guard before a stream starts: checkpoint, topics and table must continue each other, or somebody must decide.

A checkpoint that was deleted, exchanged or left behind by a restored table, a topic made anew, records that retention
removed unread: each is refused in one line with the command that goes on. That command begins a new epoch, a checkpoint
with a new id, exactly where the table ends.
"""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from kbit_spark.config.ingest import IngestConfig
from kbit_spark.errors import RunError
from kbit_spark.schemas import LedgerState, Loss
from kbit_spark.sources.continuity import (
    CheckpointState,
    Start,
    Topics,
    TopicState,
    checkpoint_fault,
    losses,
    resume_offsets,
)
from kbit_spark.sources.kafka import topic_states
from kbit_spark.sources.offsets import CheckpointLog
from kbit_spark.tables.dead_letters import drop_letters, of_batches, unfinished
from kbit_spark.tables.ledger import WholeBatches, read_ledger

log = logging.getLogger("kbit.guard")


def check_continuity(spark: SparkSession, config: IngestConfig, take_over: Callable[[], None]) -> Start:
    """Return how the stream begins; a new epoch only where `config.guard` allows what makes one necessary.

    Args:
        spark: the session.
        config: the job.
        take_over: called before a new epoch changes anything; no other job can commit to `samples` behind it.

    Raises:
        UsageError: the checkpoint is a file.
        RunError: checkpoint, topics and table do not continue each other, or another stream reads one of the topics
            into the table; it says how to go on.
    """
    names = [topic.name for topic in config.kafka.topics]
    checkpoint = CheckpointLog(spark, config.checkpoint_dir)
    ledger, state = read_ledger(config.tables.samples, config.stream_id, names), checkpoint.state()
    if ledger.taken:
        raise _taken(ledger, config.tables.samples)
    topics = topic_states(config.kafka)
    lost = losses(ledger, topics) if topics is not None else ()
    fault = checkpoint_fault(ledger, state, names)
    ids = {name: topic.topic_id for name, topic in (topics or {}).items() if topic.topic_id is not None}
    if lost and not config.guard.accept_loss:
        raise RunError(describe_losses(lost), f"to go on without them: {command('--accept-loss')}")
    if fault is not None and not (config.guard.rebase or lost):
        raise RunError(fault, f"to go on {_where(ledger)} under a new checkpoint: {command('--rebase')}")
    if fault is None and not lost:
        return Start(topic_ids=ids)
    offsets = resume_offsets(
        ledger, _from_ledger(ledger) if topics is None else topics, lost, config.kafka.starting_offsets
    )
    take_over()  # else the dead letters dropped next could be those of a batch that still becomes whole
    _begin_epoch(spark, config, checkpoint, state)
    return Start(offsets or None, lost, ids)


def describe_losses(lost: Sequence[Loss]) -> str:
    """Return in one line what is lost; the first few places stand for all."""
    reasons = {
        "retention": "Kafka has removed offsets {start} to {last} of {place}, which were not read yet",
        "recreated": "{place} was made anew: the table had reached offset {start} of the topic before",
        "truncated": "{place} ends at offset {end}, before offset {start} that the table has reached",
    }
    texts = [
        reasons[loss.reason].format(
            place=f"{loss.topic}[{loss.partition}]", start=loss.start, end=loss.end, last=loss.end - 1
        )
        for loss in lost[:3]
    ]
    return "; ".join(texts) + (f"; and {len(lost) - 3} partitions more" if len(lost) > 3 else "")


def command(flag: str) -> str:
    """Return the command that runs this process once more with a flag."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # the options of spark-submit are not told
        return "spark-submit ... " + shlex.join([*sys.argv, flag])
    return shlex.join([*sys.orig_argv, flag])


def _taken(ledger: LedgerState, table: str) -> RunError:
    topic, stream_id = min(ledger.taken.items())
    msg = f"the stream {stream_id} has read the topic {topic} into {table} already; its records would be there twice"
    return RunError(msg, f"go on as stream_id: {stream_id}, or give this stream tables of its own")


def _where(ledger: LedgerState) -> str:
    if not ledger.reached:
        return "at kafka.starting_offsets"
    (topic, partition), offset = min(ledger.reached.items())
    more = f" (and {len(ledger.reached) - 1} partitions more)" if len(ledger.reached) > 1 else ""
    return f"exactly where the table ends, {topic}[{partition}] at {offset}{more},"


def _from_ledger(ledger: LedgerState) -> Topics:
    """Return the partitions that the ledger names, where the broker cannot be asked."""
    partitions: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in ledger.reached.items():
        partitions.setdefault(topic, {})[partition] = offset
    return {topic: TopicState(None, offsets, offsets) for topic, offsets in partitions.items()}


def _begin_epoch(spark: SparkSession, config: IngestConfig, checkpoint: CheckpointLog, state: CheckpointState) -> None:
    """Set the checkpoint aside, and drop dead letters of batches that are not whole: they will be read again."""
    aside = checkpoint.set_aside()
    log.warning("a new epoch begins after %s; the old checkpoint: %s", state.epoch, aside)
    whole = WholeBatches(config.tables.samples, config.stream_id)
    letters = spark.read.format("delta").load(config.tables.rejected)
    if left := unfinished(letters, config.stream_id, whole):
        drop_letters(spark, config.tables.rejected, of_batches(config.stream_id, left))
