"""Language-neutral vectors: turns a case into a plan, decodes it and compares (tests/vectors/README.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbit_spark.cli.decode import avro_rows, protobuf_rows
from kbit_spark.cli.decode.jvm import Decode
from kbit_spark.cli.decode.protobuf_rows import compiled
from kbit_spark.codecs.framing import UNRESOLVED, ConfluentSchemas, soe_plan
from kbit_spark.codecs.json import json_plan
from kbit_spark.codecs.mongo import mongo_plan
from kbit_spark.codecs.plan import Plan
from kbit_spark.codecs.protobuf_fields import Recursive, fields_of
from kbit_spark.codecs.registry import SchemaRegistry
from kbit_spark.column_types import parse_columns, type_text
from kbit_spark.config.kafka import TopicConfig
from kbit_spark.config.registry import RegistryConfig
from kbit_spark.errors import UsageError
from kbit_spark.local.registry import Registry, serve
from kbit_spark.schemas.fields import FieldSpec

MAY_BE_SKIPPED = frozenset({"unsigned", "recursive-schema", "recursive-writer"})
"""Tags of cases that a decoder may leave out if its row types cannot express them."""

Case = dict[str, Any]


@dataclass
class Outcome:
    """How a run of vectors went: `mismatches` holds a line for each case that disagrees, its id first."""

    passed: int
    mismatches: list[str]
    skipped: list[str]

    def summary(self) -> str:
        """Return the last line of a run."""
        return f"vectors: passed={self.passed} failed={len(self.mismatches)} skipped={len(self.skipped)}"


def read(file: Path) -> list[Case]:
    """Return the cases of a vector file.

    Raises:
        UsageError: it cannot be read, or a line is no case.
    """
    if file.is_dir():
        msg = f"{file} is a folder, not a vector file"
        raise UsageError(msg, f"name the files in it that hold vectors, e.g. --vectors {file}/*.jsonl")
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        msg = f"cannot read the vectors {file}: {reason}"
        raise UsageError(msg, "see tests/vectors/README.md for the format") from error
    return [_case(line, f"{file}:{number}") for number, line in enumerate(lines, 1) if line.strip()]


def _case(line: str, place: str) -> Case:
    try:
        case = json.loads(line)
        missing = {"id", "format", "framing", "payload", "expect"} - case.keys()
        bytes.fromhex(case["payload"])
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        msg = f"{place}: no vector: {type(error).__name__}: {error}"
        raise UsageError(msg, "see tests/vectors/README.md for the format") from error
    if missing:
        msg = f"{place}: the vector has no {', '.join(sorted(missing))}"
        raise UsageError(msg, "see tests/vectors/README.md for the format")
    return dict(case)


def run(cases: Iterable[Case], decode: Decode) -> Outcome:
    """Decode every case and compare."""
    outcome = Outcome(0, [], [])
    for case in cases:
        try:
            fault = mismatch(case, result(case, decode))
        except Recursive:
            if MAY_BE_SKIPPED.intersection(case.get("tags", ())):
                outcome.skipped.append(case["id"])
                continue
            fault = "its row would contain itself"
        except Exception as error:  # one broken case must not hide the others
            fault = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        if fault is None:
            outcome.passed += 1
        else:
            outcome.mismatches.append(f"{case['id']}: {fault}")
    return outcome


def result(case: Case, decode: Decode) -> dict[str, Any]:
    """Return what the decoder makes of a case's payload.

    Raises:
        Recursive: a row type cannot express the case's schema.
        UsageError: the case's schema cannot be read.
    """
    payload = bytes.fromhex(case["payload"])
    if case["framing"] == "confluent":
        return _confluent(case, payload, decode)
    return decode(plan(case), [payload])[0]


def plan(case: Case) -> Plan:
    """Return the plan of a case that needs no registry.

    Raises:
        Recursive: a row type cannot express the case's schema.
        UsageError: the case's schema cannot be read.
    """
    if case["framing"] == "soe":
        texts = {f"schema {i}": json.dumps(schema) for i, schema in enumerate(case["known_schemas"])}
        return soe_plan(texts, _fields(case))
    if case["format"] == "avro":
        return avro_rows.whole_plan(case)
    if case["format"] == "protobuf":
        return protobuf_rows.whole_plan(compiled(case["proto"]).message(case["message"]))
    return {"json": json_plan, "mongo": mongo_plan}[case["format"]](ddl_fields(case["ddl"]))


def ddl_fields(ddl: str) -> list[FieldSpec]:
    """Return the columns of a DDL text as fields.

    Raises:
        ValueError: the text is no DDL.
    """
    return [FieldSpec(name=c.name, type=type_text(c.type), required=c.required) for c in parse_columns(ddl)]


def _fields(case: Case) -> Sequence[FieldSpec]:
    if case["format"] == "avro":
        return avro_rows.avro_fields(case["reader_schema"])
    if "message" not in case:  # refused before a message is chosen
        return [FieldSpec(name="a", type="int", required=False)]
    return fields_of(compiled(next(iter(case["registry"].values()))).message(case["message"]))


def _confluent(case: Case, payload: bytes, decode: Decode) -> dict[str, Any]:
    """Decode through a real registry that knows the case's schemas, as the stream does."""
    avro = case["format"] == "avro"
    schemas: dict[int, dict[str, Any]] = {
        int(number): {"schema": json.dumps(schema)} if avro else {"schema": schema, "schemaType": "PROTOBUF"}
        for number, schema in case["registry"].items()
    }
    topic = TopicConfig(name="vector", format=case["format"], framing="confluent", message=case.get("message"))
    with serve(Registry(schemas)) as server:
        known = ConfluentSchemas(topic, _fields(case), SchemaRegistry(RegistryConfig(url=server.url)))
        return through_registry(known, payload, decode)


def through_registry(known: ConfluentSchemas, payload: bytes, decode: Decode) -> dict[str, Any]:
    """Decode a payload, asking for the schema that it names where that is not known yet."""
    found = decode(known.plan(), [payload])[0]
    if found.get("error") != UNRESOLVED:
        return found
    known.learn(int.from_bytes(payload[1:5], "big"))
    return decode(known.plan(), [payload])[0]


def expected(case: Case) -> dict[str, Any]:
    """Return what a case expects, in the form that the decoder's columns have."""
    expect = dict(case["expect"])
    if "value" not in expect:
        return expect
    if case["format"] == "avro":
        return avro_rows.expected(case)
    if case["format"] == "protobuf":
        text = case["proto"] if case["framing"] == "raw" else next(iter(case["registry"].values()))
        return {"value": protobuf_rows.shown_as_row(compiled(text).message(case["message"]), expect["value"])}
    return expect


def mismatch(case: Case, found: dict[str, Any]) -> str | None:
    """Return how a result differs from what the case expects, None where they agree."""
    expect = expected(case)
    if "value" in expect:
        return None if same(found.get("value"), expect["value"]) else _differ(expect, found)
    if found.get("error") != expect["error"]:
        return _differ(expect, found)
    if "position" in case and found["position"] != case["position"]:
        return _differ({**expect, "position": case["position"]}, found)
    return None


def _differ(expect: dict[str, Any], found: dict[str, Any]) -> str:
    return f"expected {json.dumps(expect)}, got {json.dumps(found)}"


def same(found: Any, wanted: Any) -> bool:
    """Tell whether two JSON values are the same: numbers by value, objects whatever their order, true is not 1."""
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    if isinstance(found, dict) and isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(same(found[key], wanted[key]) for key in wanted)
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return bool(found == wanted)
