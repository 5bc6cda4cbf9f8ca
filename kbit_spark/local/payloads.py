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

Format = Literal["json", "avro", "mongo", "mongo-canonical"]

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
    """Return the payload: JSON with the image as 784 numbers, bare Avro with it as bytes, or a MongoDB document."""
    if form == "json":
        return _json({"image": digit.image.ravel().tolist(), "label": digit.label})
    if form in ("mongo", "mongo-canonical"):
        return _json(_document(digit, canonical=form == "mongo-canonical"))
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, _schema(), {"image": digit.image.tobytes(), "label": digit.label})
    return buffer.getvalue()


def write_schema(path: Path) -> None:
    """Write the Avro schema of `encode`."""
    path.write_text(json.dumps(SCHEMA, indent=2) + "\n", encoding="utf-8")


def _document(digit: Digit, *, canonical: bool) -> dict[str, Any]:
    """Return {images, label, metadata} in Extended JSON v2; canonical wraps each number."""

    def number(value: int) -> int | dict[str, str]:
        return {"$numberInt": str(value)} if canonical else value

    return {
        "_id": {"$oid": f"{digit.id:024x}"},
        "images": [number(pixel) for pixel in digit.image.ravel().tolist()],
        "label": number(digit.label),
        "metadata": {"source": str(digit.id)},
    }


def _json(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()


@cache
def _schema() -> Any:
    return fastavro.parse_schema(SCHEMA)


Breakage = Callable[[bytes], bytes]

_DOCUMENT_BREAKAGES: dict[str, Breakage] = {
    "cut in the image": lambda payload: payload[: len(payload) // 2],
    "one pixel too many": lambda payload: payload.replace(b"[", b"[0,", 1),
    "pixel above 255": lambda payload: payload.replace(b"[", b"[256,", 1),
    "pixel as a double": lambda payload: payload.replace(b"[", b"[0.0,", 1),
    "a second document behind": lambda payload: payload + b"{}",
    "label named twice": lambda payload: payload[:-1] + b',"label":1}',
    "text as number": lambda payload: payload.replace(b'"label":', b'"label":{"$numberInt":"seven"},"x":', 1),
    "object id cut": lambda payload: payload.replace(b'"$oid":"00', b'"$oid":"', 1),
    "document in a string": lambda payload: json.dumps(payload.decode()).encode(),
    "shell constructor": lambda payload: payload.replace(b'"label":', b'"label":NumberInt(7),"x":', 1),
    "empty": lambda payload: b"",
}

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
    "mongo": _DOCUMENT_BREAKAGES,
    "mongo-canonical": _DOCUMENT_BREAKAGES,
}
"""What goes wrong, and how: each makes a payload that a strict decoder must refuse."""
