"""Offset ranges of a micro-batch, read from the query's checkpoint.

The checkpoint, not the records, says what a batch covers: offsets without a record (transaction markers, compaction)
belong to it as well. Source: Spark's OffsetSeqLog and HDFSMetadataLog, files ``offsets/N`` and ``sources/0/0``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from kbit_spark.errors import RunError, UsageError
from kbit_spark.schemas.ledger import OffsetRange, Places
from kbit_spark.sources.continuity import CheckpointState
from kbit_spark.sources.query import root_cause

Offsets = dict[str, dict[str, int]]
"""Topic to partition (as text, as Spark writes it) to offset."""


_METADATA = "metadata"


class DamagedError(RunError):
    """A file of a checkpoint is not what Spark wrote: Spark does not sync them, so a power failure may empty one."""


@dataclass(frozen=True)
class CheckpointLog:
    """The logs of one streaming checkpoint, local or on any file system that Hadoop knows."""

    spark: SparkSession
    checkpoint_dir: str

    def query_id(self) -> str | None:
        """Return the id that a checkpoint keeps for its whole life; None before its first start.

        Raises:
            RunError: it cannot be read.
        """
        text = self._read(_METADATA)
        try:
            return None if text is None else str(json.loads(text)["id"])
        except (LookupError, ValueError, TypeError) as error:
            raise self._damaged(_METADATA) from error

    def ranges(self, batch_id: int) -> tuple[OffsetRange, ...]:
        """Return the offset ranges of a batch that has begun, in the order of topic and partition.

        Raises:
            RunError: the checkpoint's log of the batch is not there or cannot be read.
        """
        end = self._offsets(f"offsets/{batch_id}")
        start = self._offsets(f"offsets/{batch_id - 1}") if batch_id else self._first
        return ranges_between(start, end, first=self._first)

    def state(self) -> CheckpointState:
        """Return what the checkpoint knows; of one that is not there, nothing, of a damaged one, no more than that.

        Raises:
            UsageError: it is a file, which nobody may take for a damaged checkpoint and set aside.
            RunError: the file system refuses.
        """
        system, root = self._locate("")
        if system.exists(root) and not system.getFileStatus(root).isDirectory():
            msg = f"the checkpoint {self.checkpoint_dir} is a file, not a folder"
            raise UsageError(msg, "correct checkpoint_dir, or move the file away")
        try:
            return self._intact_state()
        except DamagedError as error:
            return CheckpointState(self.checkpoint_dir, damage=error.message)

    def _intact_state(self) -> CheckpointState:
        done = self._batches("commits")[-1:]
        for batch_id in done:  # Spark reads it at its start
            self._last_object(f"commits/{batch_id}")
        begun = self._offsets("sources/0/0") if self._read("sources/0/0") is not None else None
        batches = self._batches("offsets")
        return CheckpointState(
            path=self.checkpoint_dir,
            epoch=self.query_id(),
            begun=None if begun is None else places(begun),
            batch_id=batches[-1] if batches else None,
            done=done[0] if done else None,
            ends={batch_id: places(self._offsets(f"offsets/{batch_id}")) for batch_id in batches[-2:]},
        )

    def set_aside(self) -> str | None:
        """Rename the checkpoint so that a new one can take its place; return its new path, None where there was none.

        Raises:
            RunError: the file system refuses.
        """
        system, path = self._locate("")
        if not system.exists(path):
            return None
        aside = self._aside(self._asides() + 1)
        if not system.rename(path, aside):
            msg = f"cannot rename the checkpoint {self.checkpoint_dir}"
            raise RunError(msg, "move it away, then start again with the same command")
        return str(aside.toString())

    def set_aside_before(self) -> Iterator[CheckpointLog]:
        """Yield the checkpoints that were set aside in this one's place, the newest first."""
        for number in range(self._asides(), 0, -1):
            yield CheckpointLog(self.spark, str(self._aside(number).toString()))

    def _asides(self) -> int:
        """Return how many checkpoints were set aside; they are numbered from 1."""
        system, _ = self._locate("")
        return next(number for number in count() if not system.exists(self._aside(number + 1)))

    def _aside(self, number: int) -> Any:
        return self._locate("")[1].suffix(f".before-{number}")

    @cached_property
    def _first(self) -> Offsets:
        """Where the query began; Spark writes it once, before the first batch."""
        return self._offsets("sources/0/0")

    def _batches(self, log: str) -> list[int]:
        system, path = self._locate(log)
        if not system.exists(path):
            return []
        names = [str(status.getPath().getName()) for status in system.listStatus(path)]
        return sorted(int(name) for name in names if name.isdigit())

    def _offsets(self, name: str) -> Offsets:
        try:
            return {str(topic): dict(partitions) for topic, partitions in self._last_object(name).items()}
        except (ValueError, TypeError) as error:
            raise self._damaged(name) from error

    def _last_object(self, name: str) -> dict[str, Any]:
        """Return what the last line of a log's file says; the first one is the version of its format.

        Raises:
            RunError: the file is not there, or cannot be read.
        """
        lines = (self._read(name) or "").strip().splitlines()
        try:
            found = json.loads(lines[-1])
        except (IndexError, ValueError) as error:
            raise self._damaged(name) from error
        if not isinstance(found, dict):
            raise self._damaged(name)
        return found

    def _damaged(self, name: str) -> DamagedError:
        msg = f"the checkpoint {self.checkpoint_dir} has no readable {name}"
        return DamagedError(msg, "start again: if it is damaged, the guard tells how to go on")

    def _read(self, name: str) -> str | None:
        system, path = self._locate(name)
        try:
            if not system.exists(path):
                return None
            stream = system.open(path)
            try:
                return bytes(stream.readAllBytes()).decode("utf-8")
            finally:
                stream.close()
        except UnicodeDecodeError as error:
            raise self._damaged(name) from error
        except Py4JJavaError as error:
            reason = root_cause(error)
            if reason.startswith("ChecksumException"):
                raise self._damaged(name) from error
            msg = f"cannot read {name} of the checkpoint {self.checkpoint_dir}: {reason}"
            raise RunError(msg, "check the permissions and the storage, then start again; nothing is lost") from error

    def _locate(self, name: str) -> tuple[Any, Any]:
        path_class, root, system = self._root
        return system, path_class(root, name) if name else root

    @cached_property
    def _root(self) -> tuple[Any, Any, Any]:
        """The JVM's class of paths, the checkpoint's own path and its file system: each batch asks for them."""
        path_class = getattr(self.spark.sparkContext._jvm, "org.apache.hadoop.fs.Path")
        root = path_class(self.checkpoint_dir)
        return path_class, root, root.getFileSystem(self.spark._jsparkSession.sessionState().newHadoopConf())


def places(offsets: Offsets) -> Places:
    """Return Spark's form of offsets as the project's."""
    return {(topic, int(partition)): offset for topic, inner in offsets.items() for partition, offset in inner.items()}


def to_json(offsets: Places) -> str:
    """Return offsets in the form that Spark takes as starting offsets."""
    nested: Offsets = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(nested)


def ranges_between(start: Offsets, end: Offsets, first: Offsets) -> tuple[OffsetRange, ...]:
    """Return the ranges from `start` to `end`.

    A partition that is new since `start` begins where the source first saw it, which for a partition added to a
    running stream is offset 0.
    """
    return tuple(
        OffsetRange(
            topic=topic,
            partition=int(partition),
            start=start.get(topic, first.get(topic, {})).get(partition, 0),
            end=stop,
        )
        for topic, partitions in sorted(end.items())
        for partition, stop in sorted(partitions.items(), key=lambda item: int(item[0]))
    )
