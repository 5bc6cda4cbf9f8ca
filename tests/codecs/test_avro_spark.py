"""Avro through `PayloadDecoder` in Spark: every type of column, and two versions of a schema in one topic."""

from __future__ import annotations

import io
import json
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from kbit_spark.codecs.resolver import PayloadDecoder
from kbit_spark.config.kafka import KafkaConfig
from kbit_spark.config.load import validate
from kbit_spark.local.registry import RegistryServer
from kbit_spark.schemas.fields import FieldSpec, Tensor

DIGIT = [{"name": "image", "type": "bytes"}, {"name": "label", "type": "int"}]
METADATA = {"name": "metadata", "type": {"type": "map", "values": "string"}, "default": {}}
V1 = {"type": "record", "name": "Mnist", "fields": DIGIT}
V2 = {"type": "record", "name": "Mnist", "fields": [*DIGIT, METADATA]}
FIELDS = (
    FieldSpec(name="image", tensor=Tensor(dtype="uint8", shape=(2, 2))),
    FieldSpec(name="label", type="int"),
    FieldSpec(name="metadata", type="map<string, string>"),
)
IMAGE = bytes([0, 128, 255, 7])


def _avro(schema: Any, row: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), row)
    return buffer.getvalue()


def _kafka(url: str | None, **topic: Any) -> KafkaConfig:
    topics = [{"name": "t", "format": "avro", **topic}]
    registry = {"url": url, "retry_for_s": 0.3} if url else None
    return validate(KafkaConfig, {"bootstrap_servers": "none", "topics": topics, "registry": registry}, "test")


def _file(folder: Path, name: str, schema: Any) -> str:
    (folder / name).write_text(json.dumps(schema))
    return str(folder / name)


def test_two_versions_of_a_schema_in_one_topic(spark: SparkSession, registry: RegistryServer, tmp_path: Path) -> None:
    ids = [registry.registry.register("mnist", {"schema": json.dumps(schema)}) for schema in (V1, V2)]
    bodies = [_avro(V1, {"image": IMAGE, "label": 1})]
    bodies.append(_avro(V2, {"image": IMAGE, "label": 2, "metadata": {"source": "camera", "part": "a"}}))
    rows = [("t", b"\0" + number.to_bytes(4, "big") + body) for number, body in zip(ids, bodies, strict=True)]
    rows.append(("t", rows[1][1][:-1]))
    frame = spark.createDataFrame(rows, "topic string, value binary").coalesce(1)
    kafka = _kafka(registry.url, framing="confluent", reader_schema_file=_file(tmp_path, "v2.avsc", V2))
    decoder = PayloadDecoder(spark, kafka, FIELDS)

    frame.select(decoder.column(sf.col("topic"), sf.col("value"))).collect()
    assert decoder.resolve_new()
    old, new, cut = (
        row.d for row in frame.select(decoder.column(sf.col("topic"), sf.col("value")).alias("d")).collect()
    )
    assert not decoder.resolve_new()
    assert old.value.asDict() == {"image": IMAGE, "label": 1, "metadata": {}}
    assert new.value.asDict() == {"image": IMAGE, "label": 2, "metadata": {"source": "camera", "part": "a"}}
    assert (cut.value, cut.error.code) == (None, "truncated")

    # without the reader's default an old record has no metadata, which the column does not allow
    strict = PayloadDecoder(spark, _kafka(registry.url, framing="confluent"), FIELDS)
    frame.select(strict.column(sf.col("topic"), sf.col("value"))).collect()
    assert strict.resolve_new()
    results = frame.select(strict.column(sf.col("topic"), sf.col("value")).alias("d")).collect()
    assert [row.d.error and row.d.error.code for row in results] == ["missing_field", None, "truncated"]


LOGICAL: dict[str, Any] = {
    "money": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    "day": {"type": "int", "logicalType": "date"},
    "time": {"type": "int", "logicalType": "time-millis"},
    "at": {"type": "long", "logicalType": "timestamp-millis"},
    "local": {"type": "long", "logicalType": "local-timestamp-micros"},
    "uuid": {"type": "string", "logicalType": "uuid"},
}
TYPES = {"money": "decimal(9,2)", "day": "date", "time": "long", "at": "timestamp", "local": "timestamp_ntz"} | {
    "uuid": "string"
}
ON_THE_WIRE = {
    "money": (-12345).to_bytes(3, "big", signed=True),
    "day": -1,
    "time": 1,
    "at": 1_700_000_000_123,
    "local": 1,
    "uuid": "12345678-9ABC-def0-1234-56789abcdef0",
}
IN_SPARK = {
    "money": Decimal("-123.45"),
    "day": date(1969, 12, 31),
    "time": 1000,
    "at": datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=timezone.utc).timestamp(),
    "local": datetime(1970, 1, 1, 0, 0, 0, 1),
    "uuid": "12345678-9abc-def0-1234-56789abcdef0",
}


def test_every_type_of_column(spark: SparkSession, tmp_path: Path) -> None:
    part = {"type": "record", "name": "Part", "fields": [{"name": n, "type": kind} for n, kind in LOGICAL.items()]}
    wire_part = {**part, "fields": [{"name": n, "type": kind["type"]} for n, kind in LOGICAL.items()]}
    rest: dict[str, Any] = {
        "parts": {"type": "array", "items": ["null", "Part"]},
        "names": {"type": "map", "values": {"type": "array", "items": "int"}},
        "either": ["null", "long", "string", "Part"],
        "none": ["null", "Part"],
    }

    def schema(inner: Any) -> Any:
        fields = [{"name": "part", "type": inner}, *({"name": n, "type": kind} for n, kind in rest.items())]
        return {"type": "record", "name": "Row", "fields": fields}

    struct = f"struct<{', '.join(f'{name}: {kind} not null' for name, kind in TYPES.items())}>"
    columns = {"part": struct, "parts": f"array<{struct}>", "names": "map<string, array<int>>"}
    columns |= {"either": f"struct<long: long, string: string, Part: {struct}>", "none": struct}
    fields = [FieldSpec(name=name, type=kind, required=name == "part") for name, kind in columns.items()]
    decoder = PayloadDecoder(spark, _kafka(None, schema_file=_file(tmp_path, "row.avsc", schema(part))), fields)

    row = {"part": ON_THE_WIRE, "parts": [ON_THE_WIRE, None], "names": {"a": [1, 2], "": []}, "none": None}
    payloads = [_avro(schema(wire_part), row | {"either": either}) for either in ("text", ("Part", ON_THE_WIRE), None)]
    frame = spark.createDataFrame([("t", payload) for payload in payloads], "topic string, value binary").coalesce(1)
    decoded = frame.select(decoder.column(sf.col("topic"), sf.col("value")).alias("d")).collect()
    results = [found.d.value.asDict(recursive=True) for found in decoded]

    def with_instant(found: dict[str, Any]) -> dict[str, Any]:
        return found | {"at": found["at"].timestamp()}

    for found in results:
        assert with_instant(found["part"]) == IN_SPARK
        assert with_instant(found["parts"][0]) == IN_SPARK
        assert (found["parts"][1], found["names"], found["none"]) == (None, {"a": [1, 2], "": []}, None)
    assert results[0]["either"] == {"long": None, "string": "text", "Part": None}
    assert with_instant(results[1]["either"]["Part"]) == IN_SPARK
    assert results[2]["either"] is None


def test_a_reader_schema_serves_raw_and_single_object_framing(spark: SparkSession, tmp_path: Path) -> None:
    file, reader = _file(tmp_path, "v1.avsc", V1), _file(tmp_path, "v2.avsc", V2)
    body = _avro(V1, {"image": IMAGE, "label": 1})
    number = fastavro.schema.fingerprint(fastavro.schema.to_parsing_canonical_form(V1), "CRC-64-AVRO")
    headers = {"raw": b"", "soe": b"\xc3\x01" + bytes.fromhex(number)}
    for framing, header in headers.items():
        schemas = {"schema_file": file} if framing == "raw" else {"schema_files": [file]}
        kafka = _kafka(None, framing=framing, reader_schema_file=reader, **schemas)
        frame = spark.createDataFrame([("t", header + body)], "topic string, value binary")
        column = PayloadDecoder(spark, kafka, FIELDS).column(sf.col("topic"), sf.col("value"))
        assert frame.select(column.alias("d")).head().d.value.metadata == {}  # type: ignore[union-attr]
