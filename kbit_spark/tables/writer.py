"""Appends to one Delta table, each row once, and by one writer at a time.

Where Delta's own transaction can be reached (open-source Delta), the appends are its; elsewhere (Databricks) they go
through the public writer. Both give the same commits.
"""

from __future__ import annotations

from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from kbit_spark.errors import RunError
from kbit_spark.schemas.base import Engine
from kbit_spark.tables.append import Append, CachedAppend, Transaction, not_alone
from kbit_spark.tables.delta import check_columns, lacking, with_columns
from kbit_spark.tables.delta_append import DeltaAppend, DeltaClasses, Turns
from kbit_spark.tables.log import restored_among


class TableWriter:
    """Appends to one table.

    Args:
        spark: the session.
        path: the table, which exists.
        evolve: columns that the table lacks are added in the commit that has them first.
        turns: a name under which nobody else may append from now on, or one of the two is refused; None: anybody may.
            Works where Delta's own transaction can be reached. Nobody may restore the table from now on either.
    """

    def __init__(self, spark: SparkSession, path: str, *, evolve: bool = False, turns: str | None = None) -> None:
        self._spark = spark
        self._path = path
        self._evolve = evolve
        self._checked: tuple[Any, StructType] | None = None
        """Delta's metadata of the table and the columns that were found to fit it."""

        self._delta = DeltaClasses.find(spark)
        self._turns: Turns | None = None
        self._seen: int | None = None
        """No commit from the writer's beginning up to this version is a RESTORE; None: nobody asks."""

        self._public: DeltaTable | None = None
        """The table, where Delta's own transaction cannot be reached."""

        if turns is not None and self._delta is not None:
            started = DeltaAppend(self._delta, path, Transaction(turns, 0))
            self._turns, self._seen = Turns(turns, started.last_version(turns)), started.version()
        elif turns is not None:
            self._public = DeltaTable(path)
            self._seen = self._public.version()

    def begin(self, transaction: Transaction, columns: StructType, engine: Engine = "cpu") -> Append | None:
        """Begin an append; None where the transaction was committed before.

        Args:
            transaction: names the append.
            columns: those of the rows; checked again whenever they or the table's own change.
            engine: what writes the data files; the commit is the same.

        Raises:
            RunError: the table's columns are such that the rows do not fit, or somebody took a turn or restored the
                table.
        """
        if self._delta is None:
            if self._public is not None:
                self._public.update_incremental()
                self._check_not_restored(self._public.version())
            return CachedAppend(self._path, transaction, self._missing_now(columns) if self._evolve else ())
        append = DeltaAppend(self._delta, self._path, transaction, self._turns, engine)
        self._check_not_restored(append.version())
        if append.last_version(transaction.app_id) >= transaction.version:
            return None
        if self._turns is not None and append.last_version(self._turns.name) != self._turns.taken:
            raise not_alone(self._path)
        metadata = append.table_metadata()
        if self._checked is None or not metadata.equals(self._checked[0]) or columns != self._checked[1]:
            there = append.table_schema()
            append.add_columns(there, self._missing(there, columns))
            self._checked = None if append.added else (metadata, columns)
        return append

    def take_turn(self) -> None:
        """Commit nothing but a turn: whoever else has an append under way can no longer commit it.

        Raises:
            RunError: somebody took a turn since this writer was made.
        """
        if self._turns is None or self._delta is None:
            return
        append = DeltaAppend(self._delta, self._path, self._turns.next())
        if append.last_version(self._turns.name) != self._turns.taken:
            raise not_alone(self._path)
        append.commit()
        self._turns.taken += 1

    def holds(self, transaction: Transaction) -> bool:
        """Tell whether a transaction, or a later one of its application, was committed."""
        return self.last_version(transaction.app_id) >= transaction.version

    def last_version(self, app_id: str) -> int:
        """Return the last version that an application committed, -1 for none; a RESTORE undoes the rows, not this."""
        if self._delta is None:
            found = DeltaTable(self._path).transaction_version(app_id)
            return -1 if found is None else found
        return DeltaAppend(self._delta, self._path, Transaction(app_id, 0)).last_version(app_id)

    def nobody_took_turns(self, name: str) -> bool:
        """Tell whether nobody has appended under a name of turns yet; False also where turns are not counted."""
        return self._delta is not None and self.last_version(name) < 0

    def _check_not_restored(self, version: int) -> None:
        """Look at what others have committed since the last look: a batch on top of a RESTORE would hide what it undid.

        Raises:
            RunError: the table was restored.
        """
        if self._seen is None:
            return
        if self._turns is not None and self._turns.newest == self._seen + 1:
            self._seen += 1  # the writer's own, which is mostly all there is
        if (restored := restored_among(self._path, range(self._seen + 1, version + 1))) is not None:
            msg = f"version {restored} of {self._path} restored the table to an older one while the stream was running"
            raise RunError(msg, "start again: the guard tells what that undid, and how to go on")
        self._seen = version

    def _missing_now(self, columns: StructType) -> list[StructField]:
        return self._missing(self._spark.read.format("delta").load(self._path).schema, columns)

    def _missing(self, there: StructType, columns: StructType) -> list[StructField]:
        """Return the columns to add to those that are there, after a check of all others."""
        missing = lacking(columns, there) if self._evolve else []
        check_columns(self._path, columns, with_columns(there, missing))
        return missing
