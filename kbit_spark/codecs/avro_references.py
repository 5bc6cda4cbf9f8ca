"""Avro schemas that refer to others: made whole, so that nothing behind this needs to know of references."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kbit_spark.errors import UsageError

_NAMED = ("record", "error", "enum", "fixed")


def inline(text: str, references: Mapping[str, str], source: str) -> str:
    """Return a schema with the definition of each referenced type where it is first used.

    Args:
        text: the schema.
        references: texts of other schemas by the full name of the type that they define.
        source: where the schema comes from, for errors.

    Raises:
        UsageError: a text that is no JSON.
    """
    if not references:
        return text
    try:
        others = {name: json.loads(other) for name, other in references.items()}
        return json.dumps(_expand(json.loads(text), "", others, set()))
    except (ValueError, RecursionError) as error:
        msg = f"{source} is no valid Avro schema: {error}"
        raise UsageError(msg) from error


def _expand(schema: Any, namespace: str, others: Mapping[str, Any], defined: set[str]) -> Any:
    if isinstance(schema, str):
        name = _full(schema, namespace, others)
        if name not in others:
            return schema
        if name in defined:
            return name
        # a referenced text may define its type under another case of its own namespace, so it is read from none
        return _expand(others[name], "", others, defined)
    if isinstance(schema, list):
        return [_expand(branch, namespace, others, defined) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    whole = dict(schema)
    if schema.get("type") in _NAMED and isinstance(schema.get("name"), str):
        namespace, full = _define(schema, namespace)
        defined.add(full)
        if "." in full:
            whole["namespace"], whole["name"] = full.rsplit(".", 1)
    for key in ("items", "values"):
        if key in schema:
            whole[key] = _expand(schema[key], namespace, others, defined)
    if isinstance(schema.get("fields"), list):
        whole["fields"] = [_expand(field, namespace, others, defined) for field in schema["fields"]]
    if "type" in schema and schema["type"] not in _NAMED:
        whole["type"] = _expand(schema["type"], namespace, others, defined)
    return whole


def _define(schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """Return the namespace inside a named type, and the type's full name."""
    name = schema["name"]
    if "." in name:
        return name.rsplit(".", 1)[0], name
    space = schema.get("namespace", namespace)
    return space, f"{space}.{name}" if space else name


def _full(name: str, namespace: str, others: Mapping[str, Any]) -> str:
    local = f"{namespace}.{name}"
    return local if namespace and "." not in name and local in others else name
