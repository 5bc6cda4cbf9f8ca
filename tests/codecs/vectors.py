"""Reads tests/vectors as decoder plans and the values that they must give; says why a case is left out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbit_spark.codecs.json import json_plan
from kbit_spark.codecs.mongo import mongo_plan
from kbit_spark.codecs.plan import Plan
from kbit_spark.schemas import FieldSpec
from tests.codecs.avro_rows import expected, whole_plan

FOLDER = Path(__file__).parents[1] / "vectors"


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
    if "ddl" in data:
        return {"json": json_plan, "mongo": mongo_plan}[data["format"]](_ddl_fields(data["ddl"]))
    return whole_plan(data)


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
