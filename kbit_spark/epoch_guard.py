"""The guard before a stream starts: checkpoint, topics and table must continue each other, or somebody must decide.

A checkpoint that was deleted, exchanged or left behind by a restored table, a topic made anew, records that retention
removed unread: each is refused in one line with the command that goes on. That command begins a new epoch, a checkpoint
with a new id, exactly where the table ends. A topic that is new, and that the checkpoint cannot take up where it is to
begin, gets a new epoch without a flag: nothing of it was read, so nothing is lost.
"""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from kbit_spark.config.ingest import IngestConfig
from kbit_spark.config.secrets import masked_argument
from kbit_spark.errors import RunError
from kbit_spark.schemas.ledger import LedgerState, Loss
from kbit_spark.sources.broker import topic_states
from kbit_spark.sources.continuity import (
    CheckpointState,
    Start,
    Topics,
    checkpoint_fault,
    losses,
    needs_epoch,
    positions,
    resume_offsets,
    topics_of,
)
from kbit_spark.sources.kafka import scanned_states
from kbit_spark.sources.offsets import CheckpointLog
from kbit_spark.tables.append import batch_app_id, turns_name
from kbit_spark.tables.dead_letters import drop_letters, of_batches, unfinished
from kbit_spark.tables.ledger import WholeBatches, check_not_split, read_ledger
from kbit_spark.tables.samples import samples_end
from kbit_spark.tables.writer import TableWriter

log = logging.getLogger("kbit.guard")


def check_continuity(spark: SparkSession, config: IngestConfig, take_over: Callable[[], None]) -> Start:
    """Return how the stream begins; in a new epoch where a topic is new, or where `config.guard` allows it.

    Args:
        spark: the session.
        config: the job.
        take_over: called before a new epoch changes anything; no other job can commit to `samples` behind it.

    Raises:
        UsageError: the checkpoint is a file.
        RunError: checkpoint, topics and table do not continue each other, or another stream reads one of the topics
            into the table; it says how to go on.
    """
    names, new = [topic.name for topic in config.kafka.topics], config.kafka.starting_offsets
    checkpoint = CheckpointLog(spark, config.checkpoint_dir)
    ledger, state = read_ledger(config.tables.samples, config.stream_id, names), checkpoint.state()
    if ledger.taken:
        raise _taken(ledger, config.tables.samples)
    check_not_split(config.tables.samples, config.stream_id)
    topics = _asked(spark, config, ledger)
    ended = _ended(spark, config, ledger, checkpoint, topics) if state.begun is None else None
    if ended is None:
        ledger, fault = _compared(spark, config, ledger, state, topics)
    else:
        (state, ledger), fault = ended, None
    lost = losses(ledger, topics) if topics is not None else ()
    ids = {name: topic.topic_id for name, topic in (topics or {}).items() if topic.topic_id is not None}
    if lost and not config.guard.accept_loss:
        raise RunError(describe_losses(lost), f"to go on without them: {command('--accept-loss')}")
    if fault is not None and not (config.guard.rebase or lost):
        raise RunError(fault, f"to go on {_where(ledger)} under a new checkpoint: {command('--rebase')}")
    if fault is None and not lost and not ended and not (state.begun and needs_epoch(ledger, topics or {}, new)):
        return Start(topic_ids=ids)
    offsets = resume_offsets(ledger, _from_ledger(ledger) if topics is None else topics, lost, new)
    take_over()  # else the dead letters dropped next could be those of a batch that still becomes whole
    _begin_epoch(spark, config, checkpoint, state)
    return Start(offsets or None, lost, ids)


def _asked(spark: SparkSession, config: IngestConfig, ledger: LedgerState) -> Topics | None:
    """Return the topics as the broker has them, None where it cannot be asked and nobody wants to accept a loss."""
    topics = topic_states(spark, config.kafka)
    if topics is not None:
        return topics
    log.warning(
        "the topics were not checked, because nobody here reads kafka.options but Spark: one made anew goes unnoticed; "
        "where Kafka no longer has what comes next, this goes on behind it: %s",
        command("--accept-loss"),
    )
    return scanned_states(spark, config.kafka, ledger.reached) if config.guard.accept_loss else None


def _ended(
    spark: SparkSession, config: IngestConfig, ledger: LedgerState, checkpoint: CheckpointLog, topics: Topics | None
) -> tuple[CheckpointState, LedgerState] | None:
    """Return the checkpoint that a start set aside, to be killed before Spark had begun the next one; None if none was.

    With it comes the ledger with all positions. It has the stream exactly as the table does; one that was set aside for
    a fault, or batches ago, does not.
    """
    states = (before.state() for before in checkpoint.set_aside_before())
    state = next((state for state in states if state.begun is not None), None)
    if state is None:
        return None
    ledger, fault = _compared(spark, config, ledger, state, topics)
    return (state, ledger) if fault is None else None


def _compared(
    spark: SparkSession, config: IngestConfig, ledger: LedgerState, state: CheckpointState, topics: Topics | None
) -> tuple[LedgerState, str | None]:
    """Return the ledger with the positions of all partitions that the stream reads, and the checkpoint's fault."""
    names = [topic.name for topic in config.kafka.topics]
    samples = TableWriter(spark, config.tables.samples)
    taken = samples.last_version(batch_app_id(config.stream_id, state.epoch))
    is_new = ledger.last is None and samples.nobody_took_turns(turns_name(config.stream_id))
    fault = checkpoint_fault(ledger, state, names, taken, new=is_new)
    if fault is None:
        ledger = replace(ledger, reached=positions(ledger, state, taken))
    unknown = set(names) - {topic for topic, _ in ledger.reached}
    if ledger.complete or not unknown:
        return ledger, fault
    rows = samples_end(spark, config.tables.samples, unknown)  # a topic may have been read before the log begins
    read = {topic for topic, _ in rows}
    if read and fault is None:
        named = ", ".join(sorted(read))
        fault = f"{config.tables.samples} has rows of {named}, but its log no longer tells how far that was read"
    others = {
        (name, partition): first
        for name, topic in (topics or {}).items()
        for partition, first in topic.earliest.items()
        if name in read
    }
    return replace(ledger, reached={**others, **rows, **ledger.reached}), fault


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
    """Return the command that runs this process once more with a flag; a secret in it is masked."""
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # the options of spark-submit are not told
    told = shlex.join([*map(masked_argument, sys.argv if submitted else sys.orig_argv), flag])
    return f"spark-submit ... {told}" if submitted else told


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
    return topics_of(dict.fromkeys(topic for topic, _ in ledger.reached), ledger.reached, ledger.reached)


def _begin_epoch(spark: SparkSession, config: IngestConfig, checkpoint: CheckpointLog, state: CheckpointState) -> None:
    """Set the checkpoint aside, and drop dead letters of batches that are not whole: they will be read again."""
    aside = checkpoint.set_aside()
    log.warning("a new epoch begins after %s; the old checkpoint: %s", state.epoch, aside or state.path)
    whole = WholeBatches(config.tables.samples, config.stream_id)
    letters = spark.read.format("delta").load(config.tables.rejected)
    if left := unfinished(letters, config.stream_id, whole):
        drop_letters(spark, config.tables.rejected, of_batches(config.stream_id, left))
