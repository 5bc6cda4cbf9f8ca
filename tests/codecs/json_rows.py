"""Drawn rows of every column type, as JSON or Extended JSON from the standard library, and as tests show them."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal

from hypothesis import strategies as st

from kbit_spark.column_types import TypeTree
from kbit_spark.schemas.fields import FieldSpec

Form = Literal["json", "relaxed", "canonical"]

TYPES = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary"),
    *("decimal(12,3)", "decimal(38,38)", "date", "timestamp", "timestamp_ntz"),
    *("array<array<int>>", "map<string, double>", "array<binary>"),
    "array<struct<a: int not null, b: map<string, decimal(12,3)>, c: struct<t: timestamp, l: array<date>>>>",
)
FIELDS = [FieldSpec(name=f"c{i}", type=text, required=False) for i, text in enumerate(TYPES)]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_BITS = {"byte": 8, "short": 16, "int": 32, "long": 64}
_SHORT_TEXT = st.text(max_size=4)


def rows(form: Form) -> st.SearchStrategy[dict[str, Any]]:
    """Draw rows of `FIELDS`; only Extended JSON can write what is no finite number."""
    return st.fixed_dictionaries({field.name: st.none() | _values(field.tree, form) for field in FIELDS})


def write(row: dict[str, Any], form: Form, space: str = "") -> bytes:
    """Return the row as an object."""
    members = [f"{json.dumps(field.name)}:{space}{_text(field.tree, row[field.name], form)}" for field in FIELDS]
    return f"{{{space}{f',{space}'.join(members)}}}".encode()


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row in the form of the vectors."""
    return {field.name: _shown(field.tree, row[field.name]) for field in FIELDS}


def _values(tree: TypeTree, form: Form) -> st.SearchStrategy[Any]:
    if isinstance(tree, str):
        return _scalars(tree, form)
    if tree["type"] == "decimal":
        limit = 10 ** tree["precision"] - 1
        return st.integers(-limit, limit).map(lambda digits: Decimal(f"{digits}E-{tree['scale']}"))
    if tree["type"] == "array":
        return st.lists(st.none() | _values(tree["items"], form), max_size=3)
    if tree["type"] == "map":
        return st.dictionaries(_SHORT_TEXT, st.none() | _values(tree["values"], form), max_size=3)
    inner = {field["name"]: _values(field["type"], form) for field in tree["fields"]}
    optional = {field["name"] for field in tree["fields"] if not field["required"]}
    return st.fixed_dictionaries({name: st.none() | v if name in optional else v for name, v in inner.items()})


def _scalars(kind: str, form: Form) -> st.SearchStrategy[Any]:
    if kind in _BITS:
        half = 2 ** (_BITS[kind] - 1)
        return st.integers(-half, half - 1)
    if kind in ("float", "double"):
        wrapped = form != "json"
        return st.floats(width=32 if kind == "float" else 64, allow_nan=wrapped, allow_infinity=wrapped)
    if kind == "timestamp":
        micros = st.datetimes(timezones=st.just(timezone.utc))
        return micros | micros.map(lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000))
    plain: dict[str, st.SearchStrategy[Any]] = {
        "boolean": st.booleans(),
        "string": _SHORT_TEXT,
        "binary": st.binary(max_size=6),
        "date": st.dates(),
        "timestamp_ntz": st.datetimes(),
    }
    return plain[kind]


def _text(tree: TypeTree, value: Any, form: Form) -> str:
    if value is None:
        return "null"
    if isinstance(tree, str) or tree["type"] == "decimal":
        return _plain(value) if form == "json" else _wrapped(tree, value, form)
    if tree["type"] == "array":
        return f"[{','.join(_text(tree['items'], item, form) for item in value)}]"
    if tree["type"] == "map":
        members = [(name, _text(tree["values"], item, form)) for name, item in value.items()]
    else:
        members = [(field["name"], _text(field["type"], value[field["name"]], form)) for field in tree["fields"]]
    return f"{{{','.join(f'{json.dumps(name)}:{text}' for name, text in members)}}}"


def _plain(value: Any) -> str:
    if isinstance(value, Decimal):
        return str(value)  # the standard encoder would make a double of it
    if isinstance(value, bytes):
        return json.dumps(base64.b64encode(value).decode())
    return json.dumps(value.isoformat() if isinstance(value, date) else value)  # a datetime is a date as well


def _wrapped(tree: TypeTree, value: Any, form: Form) -> str:
    if tree == "timestamp":
        return json.dumps({"$date": _mongo_date(value, form)})
    if tree == "date" and form == "canonical":
        return json.dumps({"$date": {"$numberLong": str((value - _EPOCH.date()) // timedelta(milliseconds=1))}})
    if isinstance(value, bytes):
        return json.dumps({"$binary": {"base64": base64.b64encode(value).decode(), "subType": "00"}})
    if isinstance(value, Decimal):
        return json.dumps({"$numberDecimal": str(value)})
    if isinstance(value, float) and (form == "canonical" or not math.isfinite(value)):
        text = repr(value).replace("inf", "Infinity").replace("nan", "NaN")
        return json.dumps({"$numberDouble": text})
    if form == "canonical" and tree in _BITS:
        return json.dumps({"$numberLong" if tree == "long" else "$numberInt": str(value)})
    return _plain(value)


def _mongo_date(value: datetime, form: Form) -> Any:
    if form == "canonical" and value.microsecond % 1000 == 0:
        return {"$numberLong": str((value - _EPOCH) // timedelta(milliseconds=1))}
    return value.isoformat().replace("+00:00", "Z")


def _shown(tree: TypeTree, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(tree, dict):
        if tree["type"] == "decimal":
            return f"{value:f}"
        if tree["type"] == "array":
            return [_shown(tree["items"], item) for item in value]
        if tree["type"] == "map":
            return {name: _shown(tree["values"], item) for name, item in value.items()}
        return {field["name"]: _shown(field["type"], value[field["name"]]) for field in tree["fields"]}
    if isinstance(value, bytes):
        return {"$hex": value.hex()}
    if isinstance(value, datetime):
        local = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return local + ("Z" if tree == "timestamp" else "")
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value).replace("inf", "Infinity").replace("nan", "NaN")
    return value.isoformat() if isinstance(value, date) else value
