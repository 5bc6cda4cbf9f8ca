"""Reads tests/vectors as decoder plans and the values that they must give; says why a case is left out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbit_spark.codecs.avro import avro_plan
from kbit_spark.codecs.json import json_plan
from kbit_spark.codecs.mongo import mongo_plan
from kbit_spark.codecs.plan import Plan
from kbit_spark.schemas import FieldSpec

FOLDER = Path(__file__).parents[1] / "vectors"
AVRO = {"int", "long", "float", "double", "boolean", "string"}


class LeftOut(Exception):  # noqa: N818 - it is a count, not a fault
    """The case needs what the project does not have yet."""


@dataclass(frozen=True)
class Case:
    id: str
    plan: Plan
    payload: bytes
    expect: dict[str, Any]
    position: int | None


def load(name: str) -> tuple[list[Case], dict[str, str]]:
    """Return the cases of one file that can be expressed, and of the others id and reason."""
    cases, left_out = [], {}
    for line in (FOLDER / f"{name}.jsonl").read_text().splitlines():
        data = json.loads(line)
        try:
            plan = _plan(data)
        except LeftOut as reason:
            left_out[data["id"]] = str(reason)
            continue
        payload = bytes.fromhex(data["payload"])
        cases.append(Case(data["id"], plan, payload, data["expect"], data.get("position")))
    return cases, left_out


def _plan(data: dict[str, Any]) -> Plan:
    if data["framing"] != "raw":
        raise LeftOut("framing " + data["framing"])
    if "ddl" in data:
        return {"json": json_plan, "mongo": mongo_plan}[data["format"]](_ddl_fields(data["ddl"]))
    reader = data.get("reader_schema", data["writer_schema"])
    fields = avro_fields(reader)
    if data["topic"] in ("evolve-missing", "evolve-incompatible", "evolve-alias", "logical-ignored"):
        raise LeftOut("reader schema")
    return avro_plan(json.dumps(data["writer_schema"]), fields, data["id"])


def avro_fields(schema: dict[str, Any]) -> tuple[FieldSpec, ...]:
    """Return the row of a reader's schema."""
    return tuple(_avro_field(field) for field in schema["fields"])


def _ddl_fields(ddl: str) -> list[FieldSpec]:
    texts, depth = [""], 0
    for character in ddl:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            texts.append("")
        else:
            texts[-1] += character
    return [_ddl_field(text.strip()) for text in texts]


def _ddl_field(column: str) -> FieldSpec:
    name, _, kind = column.removesuffix(" NOT NULL").partition(" ")
    return FieldSpec(name=name, type=kind, required=column.endswith(" NOT NULL"))


def _avro_field(field: dict[str, Any]) -> FieldSpec:
    if "default" in field:
        raise LeftOut("reader schema")
    kind, required = field["type"], True
    if isinstance(kind, list):
        if len(kind) != 2 or "null" not in kind:
            raise LeftOut("union of several types")
        kind, required = next(branch for branch in kind if branch != "null"), False
    return FieldSpec.model_validate({"name": field["name"], "type": _avro_type(kind), "required": required})


def _avro_type(kind: Any) -> str:
    if isinstance(kind, str) and kind in AVRO:
        return kind
    if kind == "bytes":
        return "binary"
    if isinstance(kind, dict) and set(kind) == {"type", "items"} and str(kind["items"]) in AVRO:
        return f"array<{kind['items']}>"
    if isinstance(kind, dict) and "logicalType" not in kind:
        if kind["type"] == "fixed":
            return "binary"
        if kind["type"] == "enum":
            return "string"
    raise LeftOut("column type")
