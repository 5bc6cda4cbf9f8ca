"""The samples table gains columns while the stream runs: real broker, registry and tables."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kbit_spark import ingest, replay
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.errors import RunError
from kbit_spark.local.registry import RegistryServer
from kbit_spark.replay import Replayed
from kbit_spark.schemas.fields import OWN_COLUMNS
from kbit_spark.schemas.ledger import LedgerEntry
from kbit_spark.tables.log import newest_first
from kbit_spark.tables.maintenance import care_session, compact
from kbit_spark.tables.snapshot import resolve
from kbit_spark.tables.verify import verify
from tests.fixtures.jobs import image, ingest_config, json_records, ledger
from tests.fixtures.kafka import Kafka, Record
from tests.ingest.test_maintenance import drain

pytestmark = pytest.mark.kafka

PLACE = {"type": "record", "name": "Place", "fields": [{"name": "lane", "type": "int"}]}
CAMERA = {"name": "camera", "type": "string"}
SPEED = {"name": "speed", "type": ["null", "double"]}


class Topic:
    """A topic whose records name schemas of a registry."""

    def __init__(self, kafka: Kafka, registry: RegistryServer, name: str) -> None:
        self._kafka, self._registry = kafka, registry
        self.name = kafka.topic(name)
        self.produced = 0

    def produce(self, count: int, *more: dict[str, Any], label: bool = True, unknown: bool = False, **row: Any) -> int:
        """Write records of {image, label} and `more` fields, whose values are in `row`; return the schema's id."""
        fields = [{"name": "image", "type": "bytes"}, *([{"name": "label", "type": "int"}] if label else []), *more]
        schema = {"type": "record", "name": "Digit", "fields": fields}
        number = 10_000 if unknown else self._registry.registry.register("digits", {"schema": json.dumps(schema)})
        records: list[Record] = []
        for i in range(self.produced, self.produced + count):
            out = io.BytesIO(b"\0" + number.to_bytes(4, "big"))
            out.seek(5)
            values = {"image": bytes(image(i)), "label": i % 10, **row}
            fastavro.schemaless_writer(out, fastavro.parse_schema(schema), values)
            records.append((f"k{i}".encode(), out.getvalue()))
        self._kafka.produce(self.name, records)
        self.produced += count
        return number


def config_of(folder: Path, kafka: Kafka, registry: RegistryServer, topic: str, **changes: Any) -> IngestConfig:
    base = ingest_config(folder, kafka.bootstrap_servers, {topic: "json"}).model_dump(mode="json")
    base["kafka"]["topics"] = [{"name": topic, "format": "avro", "framing": "confluent"}]
    base["kafka"]["registry"] = {"url": registry.url, "retry_for_s": 1.0}
    base["tables"]["evolve"] = "added-fields"
    return IngestConfig.model_validate({**base, **changes})


def rows(config: IngestConfig) -> dict[int, dict[str, Any]]:
    """Return the rows by offset, without the columns that every table has but the split."""
    hidden = {*OWN_COLUMNS, "image"} - {"_split"}
    table = DeltaTable(config.tables.samples).to_pyarrow_table().to_pylist()
    return {row["_offset"]: {name: value for name, value in row.items() if name not in hidden} for row in table}


def gained(config: IngestConfig) -> list[tuple[int, list[str]]]:
    """Return the batches whose own commits added columns, with the names of all fields from then on."""
    found = []
    for commit in reversed(list(newest_first(config.tables.samples))):
        text = Path(config.tables.samples, "_delta_log", f"{commit.version:020}.json").read_text()
        changed = [json.loads(line)["metaData"] for line in text.splitlines() if "metaData" in json.loads(line)]
        if changed and commit.version:
            names = [field["name"] for field in json.loads(changed[0]["schemaString"])["fields"]]
            entry = LedgerEntry.from_metadata(commit.user_metadata)
            assert entry is not None
            found.append((entry.batch_id, [name for name in names if name not in OWN_COLUMNS]))
    return found


def rejections(config: IngestConfig) -> list[tuple[str, str]]:
    table = DeltaTable(config.tables.rejected).to_pyarrow_table().to_pylist()
    return sorted({(row["code"], row["reason"]) for row in table})


def test_fields_of_new_schemas_become_columns_while_the_stream_runs(
    spark: SparkSession, kafka: Kafka, registry: RegistryServer, tmp_path: Path
) -> None:
    topic = Topic(kafka, registry, "evolve")
    config = config_of(tmp_path, kafka, registry, topic.name)
    topic.produce(40)
    topic.produce(40, CAMERA, {"name": "place", "type": PLACE}, camera="left", place={"lane": 3})
    topic.produce(10)  # old records go on
    topic.produce(10, CAMERA, SPEED, camera="right", speed=1.5)
    topic.produce(10, {"name": "camera", "type": "int"}, camera=7)  # another type
    topic.produce(10, CAMERA, label=False, camera="left")  # a required field was removed
    ingest.run(config)

    assert gained(config) == [
        (1, ["image", "label", "camera", "place"]),
        (2, ["image", "label", "camera", "place", "speed"]),
    ]
    found = rows(config)
    assert len(found) == 100
    nothing = {"camera": None, "place": None, "speed": None}
    assert {key: found[7][key] for key in ("label", *nothing)} == {"label": 7, **nothing}
    assert {key: found[47][key] for key in nothing} == {"camera": "left", "place": {"lane": 3}, "speed": None}
    assert {key: found[85][key] for key in nothing} == nothing
    assert {key: found[95][key] for key in nothing} == {"camera": "right", "place": None, "speed": 1.5}
    (missing, _), (mismatch, why) = rejections(config)
    assert (missing, mismatch) == ("missing_field", "type_mismatch")
    assert "field 'camera' can never be read: int cannot be read as string" in why
    assert verify(config.tables.samples, config.tables.rejected).faults == []

    # a restart knows the columns by the table; compaction changes neither rows nor splits; training's view is whole
    topic.produce(5, CAMERA, camera="back")
    ingest.run(config)
    before = rows(config)
    assert len(gained(config)) == 2 and before[124]["camera"] == "back"
    assert compact(care_session(spark, 1 << 20), config.tables.samples)["files_removed"] > 3
    assert rows(config) == before
    splits = DeltaTable(config.tables.samples, version=1).to_pyarrow_table(columns=["_offset", "_split"]).to_pylist()
    assert len(splits) == 40
    assert all(before[row["_offset"]]["_split"] == row["_split"] for row in splits)
    assert sum(resolve(config.tables.samples).rows(split) for split in ("train", "validation", "test")) == 105

    # the letters that lack a label come in once that is allowed
    fields = [config.fields[0], config.fields[1].model_copy(update={"required": False})]
    assert replay.replay(config.model_copy(update={"fields": tuple(fields)})) == Replayed(10, 10, 0)
    assert (rows(config)[115]["camera"], rows(config)[115]["label"]) == ("left", None)
    assert verify(config.tables.samples, config.tables.rejected).faults == []
    assert [entry.batch_id for entry in ledger(config.tables.samples)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("odd", "value"),
    [
        ({"name": "_Offset", "type": "long"}, 7),
        (
            {"name": "pair", "type": {**PLACE, "fields": [{"name": n, "type": "int"} for n in ("lane", "Lane")]}},
            {"lane": 1, "Lane": 2},
        ),
    ],
)
def test_names_that_differ_in_case_alone_never_stop_the_stream(
    spark: SparkSession, kafka: Kafka, registry: RegistryServer, tmp_path: Path, odd: dict[str, Any], value: Any
) -> None:
    topic = Topic(kafka, registry, "cases")
    config = config_of(tmp_path, kafka, registry, topic.name)
    topic.produce(5, odd, CAMERA, camera="left", **{odd["name"]: value})
    ingest.run(config)
    assert gained(config) == [(0, ["image", "label", "camera"])]
    assert [row["camera"] for row in rows(config).values()] == ["left"] * 5


def test_a_replay_may_bring_columns_too(
    spark: SparkSession, kafka: Kafka, registry: RegistryServer, tmp_path: Path
) -> None:
    topic = Topic(kafka, registry, "late")
    config = config_of(tmp_path, kafka, registry, topic.name)
    topic.produce(5)
    topic.produce(5, CAMERA, unknown=True, camera="left")
    ingest.run(config)
    assert [code for code, _ in rejections(config)] == ["unknown_schema"]
    fields = [{"name": "image", "type": "bytes"}, {"name": "label", "type": "int"}, CAMERA]
    text = json.dumps({"type": "record", "name": "Digit", "fields": fields})
    registry.registry.schemas[10_000] = {"schema": text}
    assert replay.replay(config) == Replayed(5, 0, 0)
    assert [rows(config)[offset]["camera"] for offset in (0, 5)] == [None, "left"]
    assert replay.replay(config) == Replayed(0, 0, 5)
    assert verify(config.tables.samples, config.tables.rejected).faults == []


def test_a_new_entry_of_the_fields(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("entry")
    kafka.produce(topic, json_records(5))
    config = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    ingest.run(config)
    more = [*config.model_dump(mode="json")["fields"], {"name": "camera", "type": "string", "required": False}]
    wider = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"}, fields=more)
    with pytest.raises(RunError, match=r"has no column camera \(add it with tables\.evolve=added-fields"):
        ingest.run(wider)
    tables = {**wider.tables.model_dump(), "evolve": "added-fields"}
    evolving = ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"}, fields=more, tables=tables)
    kafka.produce(topic, [(b"c", json.dumps({"image": image(0), "label": 1, "camera": "left"}).encode())])
    assert [event.labels["columns"] for event in drain(spark, evolving, "table_evolved")] == ["camera string"]
    assert [rows(evolving)[offset]["camera"] for offset in (0, 5)] == [None, "left"]

    # a type that changes is refused before anything is read
    more[-1]["type"] = "int"
    with pytest.raises(RunError, match=r"column camera of the table .* is string, not int"):
        ingest.run(ingest_config(tmp_path, kafka.bootstrap_servers, {topic: "json"}, fields=more, tables=tables))
