"""Delta tables by path: create and check."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.fs as pafs
from delta.tables import DeltaTable
from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from kbit_spark.errors import RunError, first_line
from kbit_spark.schemas.fields import Tensor
from kbit_spark.storage import filesystem

CREATE_WAIT_S = 5.0
"""How long a table that another process has begun to make may take."""


def ensure_table(
    spark: SparkSession,
    path: str,
    schema: StructType,
    partitions: Sequence[str],
    properties: Mapping[str, str],
    *,
    may_lack: bool = False,
) -> None:
    """Create a table at `path`, or check that the one there can take rows of `schema`.

    Args:
        spark: the session.
        path: where the table lies.
        schema: its columns.
        partitions: the columns that it is partitioned by.
        properties: Delta's settings of a new table.
        may_lack: columns may be missing; the first commit that has them will add them.

    Raises:
        RunError: something else lies at the path, or a column is missing or of another type.
    """
    try:
        if not DeltaTable.isDeltaTable(spark, path):
            _create(spark, path, schema, partitions, properties)
        found = DeltaTable.forPath(spark, path)
        there = found.toDF().schema
        check_columns(path, schema, with_columns(there, lacking(schema, there)) if may_lack else there)
        layout = _layout(spark, path, found)
    except (PySparkException, Py4JJavaError) as error:
        raise _closed(path, error) from error
    if layout != list(partitions):
        msg = f"the table {path} is partitioned by {layout or 'nothing'}, not by {list(partitions)}"
        raise RunError(msg, "choose a new path for it")


def _create(
    spark: SparkSession, path: str, schema: StructType, partitions: Sequence[str], properties: Mapping[str, str]
) -> None:
    """Create the table, unless another process does so at the same time.

    Spark refuses a folder that is not empty, even if all that is there is a log without a commit: either somebody is
    about to write it, or a crash came before.
    """
    builder = DeltaTable.createIfNotExists(spark).location(path).addColumns(schema).partitionedBy(*partitions)
    for key, value in properties.items():
        builder = builder.property(key, value)
    try:
        builder.execute()
    except (PySparkException, Py4JJavaError):
        if not _await_table(spark, path):
            raise
        if not DeltaTable.isDeltaTable(spark, path):
            builder.execute()


def _await_table(spark: SparkSession, path: str) -> bool:
    """Wait for a table that another process makes; clear away what a crash left of one.

    Returns:
        Whether the table is there, or can be made now; False where something else lies at the path.
    """
    store, folder = filesystem(path)
    deadline = time.monotonic() + CREATE_WAIT_S
    while not DeltaTable.isDeltaTable(spark, path):
        found = store.get_file_info(pafs.FileSelector(folder, recursive=True, allow_not_found=True))
        names = [info.path.removeprefix(f"{folder}/") for info in found]
        committed = any(re.fullmatch(r"_delta_log/\d+\.json", name) for name in names)
        if not committed and not (names and all(name.startswith("_delta_log") for name in names)):
            return False
        if time.monotonic() > deadline:
            if committed:
                return False
            store.delete_dir(f"{folder}/_delta_log")
            return True
        time.sleep(0.1)
    return True


def delta_log(spark: SparkSession) -> Any | None:
    """Return the JVM's class of Delta's log, None where this Delta is not the open-source one."""
    jvm: Any = spark.sparkContext._jvm
    found = getattr(jvm, "org.apache.spark.sql.delta.DeltaLog")  # whole: each part would be searched for as a class
    return found if isinstance(found, JavaClass) else None


def _layout(spark: SparkSession, path: str, table: DeltaTable) -> list[str]:
    """Return the columns that a table is partitioned by.

    Where Delta's log can be reached (open-source Delta), its snapshot is asked: `detail` runs Spark jobs over the list
    of files, seconds of a process's first stream.
    """
    if (log := delta_log(spark)) is not None:
        columns = log.forTable(spark._jsparkSession, path).unsafeVolatileSnapshot().metadata().partitionColumns()
        return [str(columns.apply(index)) for index in range(columns.size())]
    return list(table.detail().select("partitionColumns").collect()[0][0])


def table_schema(spark: SparkSession, path: str) -> StructType:
    """Return the columns of a table.

    Raises:
        RunError: it cannot be opened.
    """
    try:
        return DeltaTable.forPath(spark, path).toDF().schema
    except PySparkException as error:
        raise _closed(path, error) from error


def _closed(path: str, error: Exception) -> RunError:
    msg = f"cannot open the table {path}: {first_line(str(error))}"
    return RunError(msg, "choose a path that holds a Delta table of this stream, or nothing")


def lacking(wanted: StructType, found: StructType) -> list[StructField]:
    """Return the columns of `wanted` that `found` has not, in whatever case their names are written."""
    there = {field.name.lower() for field in found}
    return [field for field in wanted if field.name.lower() not in there]


def with_columns(schema: StructType, further: Sequence[StructField]) -> StructType:
    """Return the schema with further columns at its end, which take null."""
    return StructType([*schema, *(StructField(f.name, f.dataType, True, f.metadata) for f in further)])


def check_columns(path: str, wanted: StructType, found: StructType) -> None:
    """Check that a table with the columns `found` can take rows with the columns `wanted`.

    Raises:
        RunError: a column is missing or of another type.
    """
    there = {field.name: field for field in found}
    for field in wanted:
        if field.name not in there:
            msg = f"the table {path} has no column {field.name}"
            raise RunError(msg, "add it with tables.evolve=added-fields, or choose a new path")
        if _shape(there[field.name].dataType) != _shape(field.dataType):
            kinds = f"{there[field.name].dataType.simpleString()}, not {field.dataType.simpleString()}"
            msg = f"column {field.name} of the table {path} is {kinds}"
            raise RunError(msg, "correct `fields`, or choose a new path")
        if Tensor.from_metadata(there[field.name].metadata) != Tensor.from_metadata(field.metadata):
            msg = f"column {field.name} of the table {path} holds tensors of another shape or dtype"
            raise RunError(msg, "correct `fields`, or choose a new path")


def _shape(data_type: DataType) -> str:
    return data_type.simpleString()
