"""One column out, whatever the wire holds: ``struct<value: struct<...>, error: struct<code, position, reason>>``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf
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

from kbit_spark.codecs.avro import avro_plan
from kbit_spark.codecs.json import json_plan
from kbit_spark.codecs.plan import Plan
from kbit_spark.config.ingest import TopicConfig
from kbit_spark.errors import UsageError
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


def decode_column(
    spark: SparkSession, topics: Sequence[TopicConfig], fields: Sequence[FieldSpec], topic: Column, value: Column
) -> Column:
    """Return the decoded payload of each record.

    Args:
        spark: the session; the decoders are registered with it.
        topics: how each topic's payloads are written.
        fields: the row that all of them become.
        topic: the record's topic.
        value: the record's payload.

    Returns:
        A struct of `value` and `error`, of which exactly one is null; null itself for a tombstone.

    Raises:
        UsageError: a schema that cannot be read, or can never give the fields.
    """
    cases = [(config.name, _register(spark, plan_of(config, fields), fields)) for config in topics]
    if len(cases) == 1:
        return sf.call_function(cases[0][1], value)
    column = sf.when(topic == cases[0][0], sf.call_function(cases[0][1], value))
    for name, function in cases[1:]:
        column = column.when(topic == name, sf.call_function(function, value))
    return column


def plan_of(config: TopicConfig, fields: Sequence[FieldSpec]) -> Plan:
    """Return the decoder plan of one topic.

    Raises:
        UsageError: see `decode_column`.
    """
    if config.format == "json":
        return json_plan(fields)
    assert config.schema_file is not None
    try:
        schema = Path(config.schema_file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"topic {config.name!r}: cannot read schema_file {config.schema_file}: {error}"
        raise UsageError(msg) from error
    return avro_plan(schema, fields, config.schema_file)


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


def _register(spark: SparkSession, plan: Plan, fields: Sequence[FieldSpec]) -> str:
    """Make the plan a function of the session and return its name; the same plan is the same function."""
    text = json.dumps(plan, sort_keys=True)
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    name = f"kbit_decode_{sha256(text.encode()).hexdigest()[:16]}"
    result = StructType([StructField("value", value_type(fields)), StructField("error", ERROR)])
    java_type = jvm.org.apache.spark.sql.types.DataType.fromJson(result.json())
    spark._jsparkSession.udf().register(name, jvm.kbit.decode.DecodeUdf(text), java_type)
    return name
