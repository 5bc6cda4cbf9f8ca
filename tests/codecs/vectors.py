"""Reads tests/vectors as decoder plans and the values that they must give; says why a case is left out."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbit_spark.codecs.json import json_plan
from kbit_spark.codecs.plan import Plan
from kbit_spark.schemas import FieldSpec
from tests.codecs.avro_rows import expected, whole_plan

FOLDER = Path(__file__).parents[1] / "vectors"
DDL = {"BIGINT": "long", "INT": "int", "DOUBLE": "double", "FLOAT": "float", "STRING": "string", "BOOLEAN": "boolean"}
DDL |= {"BINARY": "binary"} | {f"ARRAY<{k}>": f"array<{v}>" for k, v in DDL.items()}


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
        expect = expected(data) if data["format"] == "avro" else data["expect"]
        cases.append(Case(data["id"], plan, payload, expect, data.get("position")))
    return cases, left_out


def _plan(data: dict[str, Any]) -> Plan:
    if data["framing"] != "raw":
        raise LeftOut("framing " + data["framing"])
    if data["format"] == "json":
        return json_plan(tuple(_ddl_field(column) for column in _columns(data["ddl"])))
    return whole_plan(data)


def _columns(ddl: str) -> list[str]:
    return re.split(r",\s*(?![^<(]*[>)])", ddl)


def _ddl_field(column: str) -> FieldSpec:
    required = column.endswith(" NOT NULL")
    name, _, kind = column.removesuffix(" NOT NULL").partition(" ")
    if kind not in DDL:
        raise LeftOut("column type")
    return FieldSpec.model_validate({"name": name, "type": DDL[kind], "required": required})
