"""Appends in two steps: `write` puts the rows there unseen, `commit` makes them part of the table.

Between the two, the caller knows what it wrote, and says so in the very commit: the first step is the only pass over
the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField

from kbit_spark.errors import RunError


@dataclass(frozen=True)
class Transaction:
    """What makes an append harmless to repeat: Delta skips a version of an application that it has seen.

    Delta also skips a version that went back, without a word. So an application id belongs to one checkpoint: a new
    checkpoint, which counts from 0 again, gets another one.
    """

    app_id: str
    version: int


def turns_name(stream_id: str) -> str:
    """Return the name under which a stream's batches take turns, whatever their epoch."""
    return f"kbit:{stream_id}"


def batch_app_id(stream_id: str, epoch: str | None) -> str:
    """Return the application under which a stream's batches are committed; its versions are their numbers.

    Args:
        stream_id: the stream.
        epoch: the query id of its checkpoint.
    """
    return f"{turns_name(stream_id)}:{epoch or 'none'}"


class Append(Protocol):
    """One append under way."""

    @property
    def added(self) -> tuple[str, ...]:
        """The columns that its commit adds to the table, each with its type."""

    def write(self, rows: DataFrame) -> None:
        """Run `rows`, once; the table does not show them yet."""

    def rows(self) -> int | None:
        """Return the number of rows in the data files by the files' own statistics; None where nothing tells yet."""

    def commit(self, user_metadata: str | None = None) -> None:
        """Make the rows part of the table, all at once.

        Raises:
            RunError: somebody else committed the transaction, or took a turn, in the meantime; nothing is changed.
        """

    def undo(self) -> None:
        """Take the rows out of the table again, where Delta's own transaction can be reached."""

    def close(self) -> None:
        """Release what the append holds, committed or not."""


class CachedAppend:
    """An append through Delta's public writer: the first step caches the rows, the second one writes them."""

    def __init__(self, path: str, transaction: Transaction, further: Sequence[StructField] = ()) -> None:
        """Begin an append that adds the columns `further`."""
        self._path = path
        self._transaction = transaction
        self._further = further
        self.added = described(further)
        self._rows: DataFrame | None = None

    def write(self, rows: DataFrame) -> None:
        """Run and cache the rows."""
        self._rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
        self._rows.write.format("noop").mode("overwrite").save()

    def rows(self) -> int | None:
        """Nothing tells: no file is written yet."""
        return None

    def commit(self, user_metadata: str | None = None) -> None:
        """Write and commit the rows."""
        assert self._rows is not None
        rows = self._rows
        for column in self._further:
            rows = rows.withMetadata(column.name, column.metadata)
        writer = (
            rows.write.format("delta")
            .mode("append")
            .option("txnAppId", self._transaction.app_id)
            .option("txnVersion", self._transaction.version)
        )
        if user_metadata is not None:
            writer = writer.option("userMetadata", user_metadata)
        if self.added:
            writer = writer.option("mergeSchema", "true")
        writer.save(self._path)

    def undo(self) -> None:
        """Nothing: the public writer does not tell which files it wrote."""

    def close(self) -> None:
        """Release the cache."""
        if self._rows is not None:
            self._rows.unpersist()


def described(columns: Sequence[StructField]) -> tuple[str, ...]:
    """Return columns as names with types."""
    return tuple(f"{column.name} {column.dataType.simpleString()}" for column in columns)


def not_alone(path: str) -> RunError:
    """Return the error of a writer who finds that somebody else writes the same to a table."""
    msg = f"another process writes the same to {path}; this one has stopped before it changed anything"
    return RunError(msg, "let only one of them run, then start again")
