"""Rows/s of the decoders beside Spark's own functions, for three shapes, on payloads that are cached in memory.

Every figure is the best of some runs of one aggregation that touches each decoded field, so it holds the decoder and
little else.
"""

from __future__ import annotations

import io
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro

from kbit_spark.codecs.resolver import PayloadDecoder
from kbit_spark.config.ingest import KafkaConfig, TopicConfig
from kbit_spark.schemas import FieldSpec, Tensor

IMAGE = (FieldSpec(name="image", tensor=Tensor(dtype="uint8", shape=(28, 28))), FieldSpec(name="label", type="int"))
TEMPLATES = 64
"""Different payloads; the rows repeat them."""


@dataclass(frozen=True)
class Shape:
    """One kind of record: its payloads, how they are decoded here, and how the plain template does it."""

    name: str
    fields: tuple[FieldSpec, ...]
    payloads: tuple[bytes, ...]
    schema: str | None
    ddl: str = ""


@dataclass(frozen=True)
class Figure:
    """Rows a second of one shape."""

    shape: str
    rows: int
    payload_bytes: int
    kbit_rows_per_s: float
    peer_rows_per_s: float

    @property
    def ratio(self) -> float:
        """How many times the peer's rate."""
        return self.kbit_rows_per_s / self.peer_rows_per_s


def shapes(seed: int = 0) -> tuple[Shape, ...]:
    """Return the shapes: Avro image as bytes and as 784 ints, JSON with 784 numbers, Avro with 200 columns."""
    images = np.random.default_rng(seed).integers(0, 256, (TEMPLATES, 784))
    as_bytes, as_ints = _digits("bytes"), _digits({"type": "array", "items": "int"})
    kinds = ("long", "double", "string", "int")
    wide = [{"name": f"c{i}", "type": kinds[i % 4]} for i in range(200)]
    row = {f"c{i}": (i * 1_000, i / 3, f"text {i}", i)[i % 4] for i in range(200)}
    digits = [{"image": [int(item) for item in image], "label": i % 10} for i, image in enumerate(images)]
    return (
        Shape(
            "avro image bytes", IMAGE, _avro(as_bytes, [{**d, "image": bytes(d["image"])} for d in digits]), as_bytes
        ),
        Shape("avro image 784 ints", IMAGE, _avro(as_ints, digits), as_ints),
        Shape(
            "json image 784 ints",
            IMAGE,
            tuple(json.dumps(digit, separators=(",", ":")).encode() for digit in digits),
            None,
            "image array<int>, label int",
        ),
        Shape(
            "avro 200 columns",
            tuple(FieldSpec.model_validate(column) for column in wide),
            _avro(_record(wide), [row] * TEMPLATES),
            _record(wide),
        ),
    )


def measure(spark: SparkSession, shape: Shape, rows: int = 50_000, repeats: int = 3) -> Figure:
    """Decode `rows` payloads with both and return the best of `repeats` runs each."""
    templates = sf.array(*(sf.lit(payload) for payload in shape.payloads))
    frame = spark.range(rows).select(sf.get(templates, sf.col("id").cast("int") % TEMPLATES).alias("value")).cache()
    frame.count()
    with tempfile.TemporaryDirectory() as folder:
        ours = _ours(spark, shape, Path(folder))
    peer = from_avro("value", shape.schema) if shape.schema else sf.from_json(sf.col("value").cast("string"), shape.ddl)
    names = [field.name for field in shape.fields]
    try:
        for column in (ours, peer):  # the first run compiles and loads classes
            _seconds(frame, column, names)
        # One of each in turn, so that both meet the same load of the machine
        runs = [(_seconds(frame, ours, names), _seconds(frame, peer, names)) for _ in range(repeats)]
        best = [min(times) for times in zip(*runs, strict=True)]
    finally:
        frame.unpersist()
    return Figure(shape.name, rows, len(shape.payloads[0]), rows / best[0], rows / best[1])


def _ours(spark: SparkSession, shape: Shape, folder: Path) -> Column:
    topic = TopicConfig(name="t", format="json")
    if shape.schema:
        file = folder / "writer.avsc"
        file.write_text(shape.schema)
        topic = TopicConfig(name="t", format="avro", schema_file=str(file))
    kafka = KafkaConfig(bootstrap_servers="none:0", topics=(topic,))
    return PayloadDecoder(spark, kafka, shape.fields).column(sf.lit("t"), sf.col("value"))["value"]


def _seconds(frame: DataFrame, record: Column, names: Sequence[str]) -> float:
    begin = time.perf_counter()
    decoded = frame.select(record.alias("r")).select(*(sf.col(f"r.{name}") for name in names))
    decoded.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begin


def _digits(image: Any) -> str:
    return _record([{"name": "image", "type": image}, {"name": "label", "type": "int"}])


def _record(fields: list[dict[str, Any]]) -> str:
    return json.dumps({"type": "record", "name": "Row", "fields": fields})


def _avro(schema: str, rows: Sequence[dict[str, Any]]) -> tuple[bytes, ...]:
    parsed = fastavro.parse_schema(json.loads(schema))
    payloads = []
    for row in rows:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, row)
        payloads.append(buffer.getvalue())
    return tuple(payloads)
