"""A record of 3 KB: a picture of 3 x 32 x 32 bytes, in Avro as bytes and as an array of ints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.payloads import TEMPLATES, Case, Shape, avro_case
from kbit_spark.schemas.fields import FieldSpec, Tensor

_SHAPE = (3, 32, 32)
_FIELDS = (
    FieldSpec(name="image", tensor=Tensor(dtype="uint8", shape=_SHAPE)),
    FieldSpec(name="label", type="int"),
)
_BYTES = int(np.prod(_SHAPE))
_KINDS: dict[str, tuple[Any, Callable[[list[int]], Any]]] = {
    "picture bytes": ("bytes", bytes),
    "picture as 3072 ints": ({"type": "array", "items": "int"}, list),
}


def pictures() -> list[Case]:
    """Return both cases."""
    images = np.random.default_rng(0).integers(0, 256, (TEMPLATES, _BYTES)).tolist()
    return [_case(name, kind, [make(image) for image in images]) for name, (kind, make) in _KINDS.items()]


def _case(name: str, kind: Any, images: list[Any]) -> Case:
    rows = tuple({"image": image, "label": 7} for image in images)
    return avro_case(Shape(name, _FIELDS, TEMPLATES, rows), kind)
