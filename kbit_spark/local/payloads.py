"""Digits as Kafka payloads, and the many ways in which a payload can be broken."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal

import fastavro

from kbit_spark.local.digits import Digit

Format = Literal["json", "avro"]

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Digit",
    "namespace": "kbit",
    "doc": "One handwritten digit.",
    "fields": [
        {"name": "image", "type": "bytes", "doc": "28 x 28 pixels, row by row, 0 black to 255 white"},
        {"name": "label", "type": "int", "doc": "0 to 9"},
    ],
}


def encode(digit: Digit, form: Format) -> bytes:
    """Return the payload: JSON with the image as 784 numbers, or bare Avro with it as bytes."""
    if form == "json":
        record = {"image": digit.image.ravel().tolist(), "label": digit.label}
        return json.dumps(record, separators=(",", ":")).encode()
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, _schema(), {"image": digit.image.tobytes(), "label": digit.label})
    return buffer.getvalue()


def write_schema(path: Path) -> None:
    """Write the Avro schema of `encode`."""
    path.write_text(json.dumps(SCHEMA, indent=2) + "\n", encoding="utf-8")


@cache
def _schema() -> Any:
    return fastavro.parse_schema(SCHEMA)


Breakage = Callable[[bytes], bytes]

BREAKAGES: dict[Format, dict[str, Breakage]] = {
    "json": {
        "cut in the image": lambda payload: payload[: len(payload) // 2],
        "one pixel short": lambda payload: payload.replace(b"[0,", b"[", 1) if b"[0," in payload else payload[:-3],
        "one pixel too many": lambda payload: payload.replace(b"[", b"[0,", 1),
        "pixel above 255": lambda payload: payload.replace(b"[", b"[256,", 1),
        "pixel with a fraction": lambda payload: payload.replace(b"[", b"[0.5,", 1),
        "a second object behind": lambda payload: payload + b"{}",
        "no label": lambda payload: payload[: payload.rindex(b',"label"')] + b"}",
        "label as text": lambda payload: payload[: payload.rindex(b":") + 1] + b'"seven"}',
        "not JSON": lambda payload: b"<digit/>",
        "empty": lambda payload: b"",
    },
    "avro": {
        "cut in the image": lambda payload: payload[: len(payload) // 2],
        "cut before the label": lambda payload: payload[:-1],
        "a byte behind": lambda payload: payload + b"\x00",
        "image of 783 bytes": lambda payload: b"\x9e\x0c" + payload[3:],
        "negative length": lambda payload: b"\x01" + payload[2:],
        "length of 2^62": lambda payload: b"\x80" * 8 + b"\x80\x01" + payload[2:],
        "endless varint": lambda payload: b"\xff" * 11 + payload[2:],
        "label beyond 32 bits": lambda payload: payload[:-1] + b"\xfe\xff\xff\xff\xff\x01",
        "Confluent header": lambda payload: b"\x00\x00\x00\x00\x01" + payload,
        "empty": lambda payload: b"",
    },
}
"""What goes wrong, and how: each makes a payload that a strict decoder must refuse."""
