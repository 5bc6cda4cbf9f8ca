"""JSON payloads: the fields themselves are the plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kbit_spark.codecs.plan import Plan, plan_of_fields
from kbit_spark.column_types import TypeTree
from kbit_spark.errors import UsageError
from kbit_spark.schemas.fields import FieldSpec


def json_plan(fields: Sequence[FieldSpec]) -> Plan:
    """Return the plan for JSON objects whose members are `fields`.

    Raises:
        UsageError: a field that no object can give.
    """
    for field in fields:
        _require_text_keys(field)
    return {"format": "json", "fields": plan_of_fields(fields)}


def _require_text_keys(field: FieldSpec) -> None:
    """Refuse maps whose keys are no text, at any depth."""
    for tree in _parts(field.tree):
        if isinstance(tree, dict) and tree["type"] == "map" and tree["keys"] != "string":
            msg = f"field {field.name!r} can never be read: the names of a JSON object are text, not {tree['keys']}"
            raise UsageError(msg, "declare it as map<string, ...>")


def _parts(tree: TypeTree) -> Iterator[TypeTree]:
    yield tree
    if isinstance(tree, dict):
        inner = [tree[part] for part in ("items", "keys", "values") if part in tree]
        for part in inner + [field["type"] for field in tree.get("fields", ())]:
            yield from _parts(part)
