"""A stream with secrets in its Spark settings: none of what it leaves behind holds one."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kbit_spark import ingest
from kbit_spark.cli.report import make_report
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.config.load import validate
from kbit_spark.entry import report
from kbit_spark.errors import RunError
from tests.fixtures.jobs import ingest_data, json_records
from tests.fixtures.kafka import Kafka

pytestmark = pytest.mark.kafka
SECRET = "hunter2-c0ffee"
NAMES = ("spark.hadoop.fs.s3a.secret.key", "spark.hadoop.fs.azure.account.key.me.dfs.core.windows.net")


def test_no_sink_of_a_run_holds_a_secret(
    spark: SparkSession,
    kafka: Kafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    topic, metrics = kafka.topic("secrets"), tmp_path / "metrics"
    kafka.produce(topic, [*json_records(9), (b"bad", b"{")])
    data = ingest_data(tmp_path, kafka.bootstrap_servers, {topic: "json"}, spark=dict.fromkeys(NAMES, SECRET))
    data["telemetry"] |= {"csv": True, "metrics_table": str(metrics)}
    config = validate(IngestConfig, data, "test")
    monkeypatch.setattr(sys, "orig_argv", ["job", f"spark.{NAMES[0]}={SECRET}"])
    ingest.run(config)
    shutil.rmtree(config.checkpoint_dir)
    try:
        ingest.run(config)
    except RunError as refused:  # the checks below prove that it came
        report(refused)
    made = make_report(tmp_path / "report.html", [tmp_path / "runs"])
    assert [len(made.bad), made.unread] == [1, ()]  # which reads the configuration that the run has kept

    files = [file for file in tmp_path.rglob("*") if file.is_file() and file.suffix != ".parquet"]
    seen = {str(file): file.read_text(errors="replace") for file in files}
    seen["metrics"] = repr(DeltaTable(str(metrics)).to_pyarrow_table().to_pylist())
    seen["terminal"], seen["log"] = "".join(capfd.readouterr()), caplog.text
    assert [place for place, text in seen.items() if SECRET in text] == []
    for place in ("config.yaml", "events.jsonl", "events.csv", "report.html", "metrics"):
        texts = [text for name, text in seen.items() if name.endswith(place)]
        assert texts and all(NAMES[1] in text for text in texts), place
    for place in ("terminal", "log"):
        assert f"spark.{NAMES[0]}=***" in seen[place]
