"""Offset ranges of a micro-batch, read from the query's checkpoint.

The checkpoint, not the records, says what a batch covers: offsets without a record (transaction markers, compaction)
belong to it as well. Source: Spark's OffsetSeqLog and HDFSMetadataLog, files ``offsets/N`` and ``sources/0/0``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import SparkSession

from kbit_spark.errors import RunError
from kbit_spark.schemas import OffsetRange, Places
from kbit_spark.sources.continuity import CheckpointState

Offsets = dict[str, dict[str, int]]
"""Topic to partition (as text, as Spark writes it) to offset."""


@dataclass(frozen=True)
class CheckpointLog:
    """The logs of one streaming checkpoint, local or on any file system that Hadoop knows."""

    spark: SparkSession
    checkpoint_dir: str

    def query_id(self) -> str | None:
        """Return the id that a checkpoint keeps for its whole life; None before its first start."""
        text = self._read("metadata")
        return None if text is None else str(json.loads(text)["id"])

    def ranges(self, batch_id: int) -> tuple[OffsetRange, ...]:
        """Return the offset ranges of a batch that has begun, in the order of topic and partition.

        Raises:
            RunError: the checkpoint's log of the batch is not there or cannot be read.
        """
        end = self._offsets(f"offsets/{batch_id}")
        start = self._offsets(f"offsets/{batch_id - 1}") if batch_id else self._first
        return ranges_between(start, end, first=self._first)

    def state(self) -> CheckpointState:
        """Return what the checkpoint knows; of a checkpoint that is not there, nothing.

        Raises:
            RunError: one of its files cannot be read.
        """
        begun = self._offsets("sources/0/0") if self._read("sources/0/0") is not None else None
        batches = self._batches()
        return CheckpointState(
            path=self.checkpoint_dir,
            epoch=self.query_id(),
            begun=None if begun is None else places(begun),
            batch_id=batches[-1] if batches else None,
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
        number = 1
        while system.exists(aside := path.suffix(f".before-{number}")):
            number += 1
        if not system.rename(path, aside):
            msg = f"cannot rename the checkpoint {self.checkpoint_dir}"
            raise RunError(msg, "move it away, then start again with the same command")
        return str(aside.toString())

    @cached_property
    def _first(self) -> Offsets:
        """Where the query began; Spark writes it once, before the first batch."""
        return self._offsets("sources/0/0")

    def _batches(self) -> list[int]:
        system, path = self._locate("offsets")
        if not system.exists(path):
            return []
        names = [str(status.getPath().getName()) for status in system.listStatus(path)]
        return sorted(int(name) for name in names if name.isdigit())

    def _offsets(self, name: str) -> Offsets:
        text = self._read(name)
        try:
            line = (text or "").strip().splitlines()[-1]
            return {str(topic): dict(partitions) for topic, partitions in json.loads(line).items()}
        except (IndexError, ValueError, AttributeError) as error:
            msg = f"the checkpoint {self.checkpoint_dir} has no readable {name}"
            raise RunError(msg, "restore the checkpoint from a backup, or start a new one") from error

    def _read(self, name: str) -> str | None:
        system, path = self._locate(name)
        if not system.exists(path):
            return None
        stream = system.open(path)
        try:
            return bytes(stream.readAllBytes()).decode("utf-8")
        finally:
            stream.close()

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
