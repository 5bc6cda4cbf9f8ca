"""Writes what `bench.gpu.check` runs on a device: vectors and seeds of mutants, with plans and programs.

    python -m bench.gpu.corpus FOLDER

A case is a folder with plan.json, program.json and payloads.hex (a line a payload); seeds of mutants have `fuzz-`
before their name.
"""

from __future__ import annotations

import io
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import fastavro
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kbit_spark.cli.decode import vectors
from kbit_spark.cli.decode.avro_rows import avro_fields
from kbit_spark.cli.decode.protobuf_rows import compiled, whole_plan
from kbit_spark.codecs.avro import avro_plan
from kbit_spark.codecs.avro_schema import parse_record
from kbit_spark.codecs.gpu.program import NotOnGpu, program_for
from kbit_spark.codecs.json import json_plan
from kbit_spark.codecs.mongo import mongo_plan
from kbit_spark.codecs.plan import Plan
from tests.codecs import json_rows
from tests.codecs.avro_schemas import values, without_logical
from tests.codecs.test_protobuf import RICH
from tests.gpu.wire_noise import noise

VECTORS = Path(__file__).parents[2] / "tests/vectors"
SEEDS = 400
_TIMES = ("date", "time-millis", "time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos")
_INTS = ("date", "time-millis")
EVERYTHING: dict[str, Any] = {
    "type": "record",
    "name": "Everything",
    "fields": [
        *({"name": kind, "type": kind} for kind in ("boolean", "int", "long", "float", "double", "bytes", "string")),
        *(
            {"name": name.replace("-", "_"), "type": {"type": "int" if name in _INTS else "long", "logicalType": name}}
            for name in _TIMES
        ),
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "small", "type": {"type": "bytes", "logicalType": "decimal", "precision": 7, "scale": 2}},
        {"name": "large", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "BB", "CCC"]}},
        {"name": "fixed", "type": {"type": "fixed", "name": "Five", "size": 5}},
        {"name": "maybe", "type": ["null", "string"]},
        {"name": "either", "type": ["int", "string", {"type": "array", "items": "long"}]},
        {"name": "longs", "type": {"type": "array", "items": "long"}},
        {"name": "texts", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "map", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [
                        {"name": "id", "type": "int"},
                        {"name": "tags", "type": {"type": "array", "items": "string"}},
                    ],
                },
            },
        },
    ],
}


def main() -> None:
    """Write the cases."""
    folder = Path(sys.argv[1])
    written = 0
    for name, plan, payloads in cases():
        try:
            program = program_for(plan)
        except NotOnGpu as reason:
            print(f"{name}: {reason}")
            continue
        here = folder / name
        here.mkdir(parents=True)
        (here / "plan.json").write_text(json.dumps(plan))
        (here / "program.json").write_text(program.to_json())
        (here / "payloads.hex").write_text("".join(f"{payload.hex()}\n" for payload in payloads))
        written += 1
    print(f"{written} cases")


def cases() -> Iterator[tuple[str, Plan, Sequence[bytes]]]:
    """Yield name, plan and payloads of every case."""
    yield from _vectors()
    text = json.dumps(EVERYTHING)
    rows = _drawn(values(parse_record(text, "everything")))
    wire = fastavro.parse_schema(without_logical(EVERYTHING))
    yield "fuzz-avro", avro_plan(text, avro_fields(EVERYTHING), "everything"), [_avro(wire, row) for row in rows]
    message = compiled(RICH).message("rich.Row")
    rng = random.Random(1)
    yield "fuzz-protobuf", whole_plan(message), [noise(message, rng, 0.02) for _ in range(SEEDS)]
    fields = [field for field in json_rows.FIELDS if field.type != "timestamp_ntz"]
    form: json_rows.Form
    for form, plan in (("json", json_plan(fields)), ("relaxed", mongo_plan(fields)), ("canonical", mongo_plan(fields))):
        drawn = _drawn(json_rows.rows(form))
        yield f"fuzz-{form}", plan, [json_rows.write(row, form) for row in drawn]


def _vectors() -> Iterator[tuple[str, Plan, Sequence[bytes]]]:
    """Yield the vectors, those of one plan together."""
    from kbit_spark.cli.decode.jvm import decoders  # starts a JVM

    groups: dict[str, tuple[str, Plan, list[bytes]]] = {}

    def recorded(decode: Callable[..., Any], case_id: str) -> Callable[[Plan, Sequence[bytes]], Any]:
        def run(plan: Plan, payloads: Sequence[bytes]) -> Any:
            if plan.get("row", {}).get("width", 0) <= len(plan["fields"]):
                groups.setdefault(json.dumps(plan), (case_id, plan, []))[2].extend(payloads)
            return decode(plan, payloads)

        return run

    with decoders() as decode:
        for file in sorted(VECTORS.glob("*.jsonl")):
            for case in vectors.read(file):
                vectors.run([case], recorded(decode, case["id"]))
    for number, (name, plan, payloads) in enumerate(groups.values()):
        yield f"{number:03}-{name}", plan, payloads


def _drawn(rows: st.SearchStrategy[Any]) -> list[Any]:
    drawn: list[Any] = []

    @settings(
        max_examples=SEEDS,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(row=rows)
    def collect(row: Any) -> None:
        drawn.append(row)

    collect()
    return drawn


def _avro(schema: Any, row: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, row)
    return buffer.getvalue()


if __name__ == "__main__":
    main()
