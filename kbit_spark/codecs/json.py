"""JSON payloads: the fields themselves are the plan."""

from __future__ import annotations

from collections.abc import Sequence

from kbit_spark.codecs.plan import Plan, plan_of_fields
from kbit_spark.schemas import FieldSpec


def json_plan(fields: Sequence[FieldSpec]) -> Plan:
    """Return the plan for JSON objects whose members are `fields`."""
    return {"format": "json", "fields": plan_of_fields(fields)}
