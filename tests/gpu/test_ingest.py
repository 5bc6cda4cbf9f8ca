"""The ingest job on a device, from Kafka to the table, against the same job on the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from deltalake import DeltaTable

from tests.fixtures.jobs import avro_records, ingest_data, json_records, ledger, start
from tests.fixtures.kafka import Kafka, Record

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
ROWS = 2_000
KEYS = (None, b"", b"\xff\xfe no UTF-8 \x00", b"k" * 100, "ключ".encode())
ASSERTED = {  # RAPIDS refuses a plan of which it does not run all above the batch's rows; a refusal is a failed batch
    "spark.rapids.sql.test.enabled": "true",
    "spark.rapids.sql.test.allowedNonGpu": "RDDScanExec,CoalesceExec",
}


def records(kind: str) -> list[Record]:
    made = json_records(ROWS) if kind == "json" else avro_records(ROWS)
    odd: list[Record] = [(key, made[0][1]) for key in KEYS]
    return [*made, *odd, (b"bad", b"\x02"), (b"empty", b""), (b"gone", None)]


def run(folder: Path, data: dict[str, Any], env: dict[str, str]) -> list[dict[str, Any]]:
    """Run the job to its end and return its events."""
    options = ("--master", "local[4]", "--driver-memory", "8g", "--conf", "spark.driver.host=127.0.0.1")
    code, output = start(folder, data, options, env=env).wait(300)
    assert code == 0, output
    (file,) = folder.glob("runs/*/events.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def rows(path: Path, by: list[str]) -> pa.Table:
    table = DeltaTable(str(path)).to_pyarrow_table()
    return table.select(sorted(table.column_names)).sort_by([(name, "ascending") for name in by])


def test_the_gpu_writes_the_tables_that_the_cpu_writes(kafka: Kafka, tmp_path: Path) -> None:
    topics = {kafka.topic(kind, 3): kind for kind in ("json", "avro")}
    for topic, kind in topics.items():
        kafka.produce(topic, records(kind))
    folders = {engine: tmp_path / engine for engine in ("cpu", "gpu")}
    for engine, folder in folders.items():
        data = ingest_data(
            folder, kafka.bootstrap_servers, topics, decode={"placement": engine, "shadow_fraction": 0.5}
        )
        data["kafka"]["max_offsets_per_trigger"] = ROWS
        on_gpu = engine == "gpu"
        events = run(folder, {**data, "spark": ASSERTED if on_gpu else {}}, {"KBIT_GPU": "1"} if on_gpu else {})
        batches = [event for event in events if event["kind"] == "ingest_batch"]
        assert {event["labels"]["engine"] for event in batches} == {engine}
        assert not [event for event in events if event["kind"] in ("decode_fallback", "decode_difference")]
        if on_gpu:
            assert sum(event["numbers"]["refereed"] for event in batches) >= 4
            assert sum(event["numbers"]["disputed"] for event in batches) == 0
    coordinates = ["_topic", "_partition", "_offset"]
    cpu, gpu = (rows(folder / "samples", coordinates) for folder in folders.values())
    assert gpu.equals(cpu)  # `_split` as well, for every kind of key
    assert gpu.num_rows == 2 * (ROWS + len(KEYS))
    bad = [name.removeprefix("_") for name in coordinates]
    letters = [rows(folder / "rejected", bad).drop_columns(["batch_id"]) for folder in folders.values()]
    assert letters[0].equals(letters[1])
    assert sum(entry.good for entry in ledger(folders["gpu"] / "samples")) == gpu.num_rows
