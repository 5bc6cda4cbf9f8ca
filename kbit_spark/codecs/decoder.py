"""What every decoder gives, in Spark's types: ``struct<value: struct<...>, error: struct<code, position, reason>>``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import Column, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from kbit_spark.codecs.plan import Plan
from kbit_spark.column_types import TypeTree
from kbit_spark.schemas.fields import FieldSpec

ERROR = StructType(
    [
        StructField("code", StringType(), False),
        StructField("position", IntegerType(), False),
        StructField("reason", StringType(), False),
    ]
)

_SCALARS: dict[str, DataType] = {
    "boolean": BooleanType(),
    "byte": ByteType(),
    "short": ShortType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
}


def value_type(fields: Sequence[FieldSpec]) -> StructType:
    """Return the type of the decoded value; tensor columns carry dtype and shape as metadata."""
    return StructType([_column(field) for field in fields])


def _column(field: FieldSpec) -> StructField:
    metadata = field.tensor.to_metadata() if field.tensor else None
    return StructField(field.name, spark_type(field.tree), not field.required, metadata)


def spark_type(tree: TypeTree) -> DataType:
    """Return Spark's type of a column type's tree."""
    if isinstance(tree, str):
        return _SCALARS[tree]
    if tree["type"] == "array":
        return ArrayType(spark_type(tree["items"]))
    if tree["type"] == "map":
        return MapType(spark_type(tree["keys"]), spark_type(tree["values"]))
    if tree["type"] == "decimal":
        return DecimalType(tree["precision"], tree["scale"])
    fields = [StructField(inner["name"], spark_type(inner["type"]), not inner["required"]) for inner in tree["fields"]]
    return StructType(fields)


class DecodeFunction:
    """A plan as a function of columns, ``binary -> struct<value, error>``.

    It has no name: a streaming query's session is a copy, made at the start, and would not know functions of later.
    """

    def __init__(self, spark: SparkSession, plan: Plan, fields: Sequence[FieldSpec], unresolved: JavaObject) -> None:
        """Make the function; `unresolved` is the accumulator that it fills with the schema ids that the plan lacks."""
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        result = StructType([StructField("value", value_type(fields)), StructField("error", ERROR)])
        java_type = jvm.org.apache.spark.sql.types.DataType.fromJson(result.json())
        self._function = self._make(json.dumps(plan), unresolved, java_type)

    def _make(self, plan: str, unresolved: JavaObject, result: JavaObject) -> Any:
        return self._jvm.kbit.decode.DecodeUdf.of(plan, unresolved, result)

    def __call__(self, value: Column) -> Column:
        """Return the decoded payload of `value`."""
        return ClassicColumn(self._function.apply(self._jvm.PythonUtils.toSeq([value._jc])))


def unresolved_ids(spark: SparkSession) -> JavaObject:
    """Return a new accumulator of schema ids (SchemaIds.java), registered with the session."""
    context = spark.sparkContext
    assert context._jvm is not None
    ids = context._jvm.kbit.decode.framing.SchemaIds()
    context._jsc.sc().register(ids)
    return ids
