"""What every decoder gives, in Spark's types: ``struct<value: struct<...>, error: struct<code, position, reason>>``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from kbit_spark.codecs.plan import Plan
from kbit_spark.schemas import FieldSpec

ERROR = StructType(
    [
        StructField("code", StringType(), False),
        StructField("position", IntegerType(), False),
        StructField("reason", StringType(), False),
    ]
)

_SCALARS: dict[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
}


def value_type(fields: Sequence[FieldSpec]) -> StructType:
    """Return the type of the decoded value; tensor columns carry dtype and shape as metadata."""
    return StructType([_column(field) for field in fields])


def _column(field: FieldSpec) -> StructField:
    if field.tensor is not None:
        return StructField(field.name, BinaryType(), not field.required, field.tensor.to_metadata())
    assert field.type is not None
    return StructField(field.name, _spark_type(field.type), not field.required)


def _spark_type(name: str) -> DataType:
    if name.startswith("array<"):
        return ArrayType(_SCALARS[name[6:-1]])
    return _SCALARS[name]


def decode_function(spark: SparkSession, plan: Plan, fields: Sequence[FieldSpec], unresolved: JavaObject) -> str:
    """Make the plan a function of the session, ``binary -> struct<value, error>``, and return its name.

    `unresolved` is the accumulator of schema ids that the function fills; a plan has one function for each.
    """
    text = json.dumps(plan, sort_keys=True)
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    name = f"kbit_decode_{sha256(text.encode()).hexdigest()[:16]}_{unresolved.id()}"
    result = StructType([StructField("value", value_type(fields)), StructField("error", ERROR)])
    java_type = jvm.org.apache.spark.sql.types.DataType.fromJson(result.json())
    spark._jsparkSession.udf().register(name, jvm.kbit.decode.DecodeUdf(text, unresolved), java_type)
    return name


def unresolved_ids(spark: SparkSession) -> JavaObject:
    """Return a new accumulator of schema ids (SchemaIds.java), registered with the session."""
    context = spark.sparkContext
    assert context._jvm is not None
    ids = context._jvm.kbit.decode.framing.SchemaIds()
    context._jsc.sc().register(ids)
    return ids
