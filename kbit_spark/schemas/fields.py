"""Fields of the samples table, and tensors among them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Literal, get_args

from pydantic import Field, field_validator, model_validator

from kbit_spark.column_types import TypeTree, parse_type
from kbit_spark.schemas.base import Frozen

DType = Literal["uint8", "int8", "int16", "int32", "int64", "float32", "float64"]
Split = Literal["train", "validation", "test"]

SPLITS: tuple[Split, ...] = get_args(Split)
SPLIT_COLUMN = "_split"
OWN_COLUMNS = ("_topic", "_partition", "_offset", "_timestamp", "_key", "_headers", "_schema_id", SPLIT_COLUMN)
MAX_TENSOR_BYTES = 2**31 - 1
"""The JVM holds a BINARY value in one array."""

_ITEM_BYTES: dict[str, int] = {
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float32": 4,
    "float64": 8,
}


class Tensor(Frozen):
    """A tensor field: one BINARY column of `nbytes` little-endian bytes in row-major order."""

    dtype: DType
    shape: tuple[int, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _fits_a_column(self) -> Tensor:
        if any(size < 1 for size in self.shape):
            msg = f"every size of a tensor's shape must be at least 1, not {list(self.shape)}"
            raise ValueError(msg)
        if self.nbytes > MAX_TENSOR_BYTES:
            msg = (
                f"a tensor of {self.dtype} {list(self.shape)} has {self.nbytes:,} bytes, more than {MAX_TENSOR_BYTES:,}"
            )
            raise ValueError(msg)
        return self

    @property
    def items(self) -> int:
        """Number of items in one tensor."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of one tensor in the table."""
        return self.items * _ITEM_BYTES[self.dtype]

    def to_metadata(self) -> dict[str, Any]:
        """Return the column metadata that tells a reader dtype and shape."""
        return {"kbit.dtype": self.dtype, "kbit.shape": list(self.shape)}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Tensor | None:
        """Read `to_metadata` back; None where the column is no tensor. The shape may be a list or its JSON text."""
        if "kbit.dtype" not in metadata:
            return None
        shape = metadata["kbit.shape"]
        return cls(dtype=metadata["kbit.dtype"], shape=tuple(json.loads(shape) if isinstance(shape, str) else shape))


class FieldSpec(Frozen):
    """One decoded field of the samples table: a `type` in Spark's DDL spelling (column_types.py), or a `tensor`."""

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    type: str | None = None
    tensor: Tensor | None = None
    required: bool = True
    sources: tuple[str, ...] = ()
    """What the field is called in payloads, if not `name`; a payload or schema has one of them."""

    @field_validator("name")
    @classmethod
    def _not_ours(cls, name: str) -> str:
        if name.lower() in OWN_COLUMNS:  # Spark's names do not tell cases apart
            msg = f"{name} is a column of the table's own; name the field differently and say sources: [{name}]"
            raise ValueError(msg)
        return name

    @field_validator("type")
    @classmethod
    def _known_type(cls, text: str | None) -> str | None:
        if text is not None:
            parse_type(text)
        return text

    @model_validator(mode="after")
    def _one_kind(self) -> FieldSpec:
        if (self.type is None) == (self.tensor is None):
            msg = f"field {self.name!r} needs either a type or a tensor (dtype, shape)"
            raise ValueError(msg)
        return self

    @property
    def tree(self) -> TypeTree:
        """The type as a tree; a tensor is binary."""
        return "binary" if self.type is None else parse_type(self.type)

    @property
    def wire_names(self) -> tuple[str, ...]:
        """What the field may be called in payloads."""
        return self.sources or (self.name,)
