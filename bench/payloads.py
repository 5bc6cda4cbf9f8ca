"""Payloads of the decoder bench: three shapes of record in every format, and how the plain template decodes each."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from kbit_spark.schemas.fields import FieldSpec, Tensor

TEMPLATES = 64
"""Different payloads of a case; its rows repeat them."""

IMAGE = FieldSpec(name="image", tensor=Tensor(dtype="uint8", shape=(28, 28)))
KINDS = ("long", "double", "string", "int")
WIDE = tuple(FieldSpec(name=f"c{i}", type=KINDS[i % 4]) for i in range(200))
Row = dict[str, Any]
_PROTOBUF: dict[str, FieldDescriptorProto.Type.ValueType] = {
    "int": FieldDescriptorProto.TYPE_INT32,
    "long": FieldDescriptorProto.TYPE_INT64,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "string": FieldDescriptorProto.TYPE_STRING,
    "binary": FieldDescriptorProto.TYPE_BYTES,
}


@dataclass(frozen=True)
class Shape:
    """One kind of record: the row, its values, and the type of an image on the wire."""

    name: str
    fields: tuple[FieldSpec, ...]
    rows: int
    """Rows of a measurement: so many that a Spark job's own 50 ms hardly count."""

    values: tuple[Row, ...]


@dataclass(frozen=True)
class Case:
    """A shape in a format."""

    format: str
    shape: Shape
    payloads: tuple[bytes, ...]
    schema: str = ""
    """Text of the schema: Avro's; of JSON the columns for `from_json`."""

    descriptors: bytes = b""
    """Protobuf's schema, as a descriptor set: where the records are read, there may be no compiler."""

    target: float | None = None
    """Ratio to the peer that the issue asks for."""

    @property
    def name(self) -> str:
        """Format and shape."""
        return f"{self.format}, {self.shape.name}"

    def topic(self, folder: Path) -> Row:
        """Return the topic's configuration, its schema in a file in `folder`."""
        topic: Row = {"name": "t", "format": self.format}
        if self.format == "avro":
            (file := folder / "row.avsc").write_text(self.schema)
            topic["schema_file"] = str(file)
        if self.format == "protobuf":
            (file := folder / "row.desc").write_bytes(self.descriptors)
            topic |= {"schema_file": str(file), "message": "Row"}
        return topic


def shapes(seed: int = 0) -> tuple[Shape, Shape, Shape]:
    """Return an image as bytes, the same as 784 numbers, and a record of 200 columns."""
    images = np.random.default_rng(seed).integers(0, 256, (TEMPLATES, 784)).tolist()
    fields = (IMAGE, FieldSpec(name="label", type="int"))
    wide = {f"c{i}": (i * 1_000, i / 3, f"text {i}", i)[i % 4] for i in range(200)}
    return (
        Shape("image bytes", fields, 600_000, tuple({"image": bytes(image), "label": 7} for image in images)),
        Shape("image as 784 ints", fields, 80_000, tuple({"image": image, "label": 7} for image in images)),
        Shape("200 columns", WIDE, 80_000, tuple({**wide, "c0": i} for i in range(TEMPLATES))),
    )


def cases() -> list[Case]:
    """Return every shape in every format."""
    return [make(shape) for make in (_avro, _json, _mongo, _protobuf) for shape in shapes()]


def _avro(shape: Shape) -> Case:
    image: Any = "bytes" if shape.name == "image bytes" else {"type": "array", "items": "int"}
    return avro_case(shape, image, target=1.0)


def avro_case(shape: Shape, image: Any = None, target: float | None = None) -> Case:
    """Return a shape in Avro; `image`: the type of its field that is a tensor."""
    fields = [{"name": field.name, "type": field.type or image} for field in shape.fields]
    schema = {"type": "record", "name": "Row", "fields": fields}
    parsed = fastavro.parse_schema(schema)

    def encode(row: Row) -> bytes:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, row)
        return buffer.getvalue()

    return Case("avro", shape, _encoded(shape, encode), json.dumps(schema), target=target)


def _json(shape: Shape) -> Case:
    image = "binary" if shape.name == "image bytes" else "array<int>"
    columns = ", ".join(f"{field.name} {field.type or image}" for field in shape.fields)
    numbers = shape.name == "image as 784 ints"
    return Case("json", shape, _encoded(shape, _dump), columns, target=5.0 if numbers else None)


def _mongo(shape: Shape) -> Case:
    return Case("mongo", shape, _encoded(shape, lambda row: _dump({k: _canonical(v) for k, v in row.items()})))


def _protobuf(shape: Shape) -> Case:
    file = FileDescriptorProto(name="row.proto", syntax="proto3")
    message = file.message_type.add(name="Row")
    for number, field in enumerate(shape.fields, 1):
        repeated = field.type is None and shape.name != "image bytes"
        label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
        kind = _PROTOBUF["int" if repeated else field.type or "binary"]
        message.field.add(name=field.name, number=number, label=label, type=kind)
    pool = DescriptorPool()
    pool.Add(file)
    row_class = GetMessageClass(pool.FindMessageTypeByName("Row"))
    payloads = _encoded(shape, lambda row: row_class(**row).SerializeToString())
    return Case("protobuf", shape, payloads, descriptors=FileDescriptorSet(file=[file]).SerializeToString())


def _encoded(shape: Shape, encode: Callable[[Row], bytes]) -> tuple[bytes, ...]:
    return tuple(encode(row) for row in shape.values)


def _dump(row: Row) -> bytes:
    return json.dumps(row, separators=(",", ":"), default=_base64).encode()


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _canonical(value: Any) -> Any:
    """Return a value in MongoDB's canonical form."""
    if isinstance(value, bytes):
        return {"$binary": {"base64": _base64(value), "subType": "00"}}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_canonical(item) for item in value]
    if isinstance(value, float):
        return {"$numberDouble": repr(value)}
    return {"$numberInt": str(value)} if isinstance(value, int) else value
