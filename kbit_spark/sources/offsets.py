"""Offset ranges of a micro-batch, read from the query's checkpoint.

The checkpoint, not the records, says what a batch covers: offsets without a record (transaction markers, compaction)
belong to it as well. Source: Spark's OffsetSeqLog and HDFSMetadataLog, files ``offsets/N`` and ``sources/0/0``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from kbit_spark.errors import RunError
from kbit_spark.schemas import OffsetRange

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
        start = self._offsets(f"offsets/{batch_id - 1}" if batch_id else "sources/0/0")
        return ranges_between(start, end, first=self._offsets("sources/0/0"))

    def _offsets(self, name: str) -> Offsets:
        text = self._read(name)
        try:
            line = (text or "").strip().splitlines()[-1]
            return {str(topic): dict(partitions) for topic, partitions in json.loads(line).items()}
        except (IndexError, ValueError, AttributeError) as error:
            msg = f"the checkpoint {self.checkpoint_dir} has no readable {name}"
            raise RunError(msg, "restore the checkpoint from a backup, or start a new one") from error

    def _read(self, name: str) -> str | None:
        jvm: Any = self.spark.sparkContext._jvm
        path = jvm.org.apache.hadoop.fs.Path(self.checkpoint_dir, name)
        system = path.getFileSystem(self.spark._jsparkSession.sessionState().newHadoopConf())
        if not system.exists(path):
            return None
        stream = system.open(path)
        try:
            return bytes(stream.readAllBytes()).decode("utf-8")
        finally:
            stream.close()


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
