"""Decoder plans: what the JVM module executes, as plain JSON. Python is where schemas are understood."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbit_spark.errors import UsageError
from kbit_spark.schemas.fields import FieldSpec

Plan = dict[str, Any]


class UnreadableSchemaError(UsageError):
    """A schema that can never give the row; `code` is what each of its records is rejected with."""

    def __init__(self, message: str, hint: str = "", *, code: str = "type_mismatch") -> None:
        super().__init__(message, hint)
        self.code = code


def plan_of_field(field: FieldSpec) -> Plan:
    """Return name, names on the wire, type and nullability of a field as a plan's `fields` hold them."""
    kind: Plan = {"tensor": plan_of_tensor(field)} if field.tensor else {"type": field.tree}
    return {"name": field.name, "sources": list(field.wire_names), "required": field.required, **kind}


def plan_of_tensor(field: FieldSpec) -> Plan:
    """Return dtype and shape of a tensor field."""
    assert field.tensor is not None
    return {"dtype": field.tensor.dtype, "shape": list(field.tensor.shape)}


def plan_of_fields(fields: Sequence[FieldSpec]) -> list[Plan]:
    """Return the row that every decoder gives, in the order of `fields`."""
    return [plan_of_field(field) for field in fields]
