import json
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kbit_spark.config.telemetry import TelemetryConfig
from kbit_spark.events import Event
from kbit_spark.telemetry.hub import Telemetry


class Raising:
    name = "raising"

    def write(self, event: Event) -> None:
        msg = "disk full"
        raise OSError(msg)

    def tick(self) -> None: ...

    def close(self) -> None: ...


class Hanging(Raising):
    name = "hanging"

    def __init__(self) -> None:
        self.release = threading.Event()

    def write(self, event: Event) -> None:
        self.release.wait()


class Keeping(Raising):
    name = "keeping"

    def __init__(self) -> None:
        self.events: list[Event] = []

    def write(self, event: Event) -> None:
        self.events.append(event)


def test_a_sink_that_raises_or_hangs_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    raising, hanging, keeping = Raising(), Hanging(), Keeping()
    telemetry = Telemetry("r", "test", [raising, hanging, keeping])
    started = time.monotonic()
    for step in range(20_000):
        telemetry.emit(Event("train_window", numbers={"step": step}))
        if step % 1000 == 0:
            time.sleep(0.005)
    assert time.monotonic() - started < 5
    telemetry.close()
    assert time.monotonic() - started < 12
    off, stuck, good = telemetry.channels
    assert off.disabled and off.failures == 3
    assert stuck.dropped >= 9_000
    assert len(keeping.events) + good.dropped == 20_001  # and the end of the run
    assert sum("is off after 3 failures: disk full" in r.getMessage() for r in caplog.records) == 1
    hanging.release.set()


@pytest.mark.parametrize("method", ["write", "tick", "close"])
def test_the_end_of_a_run_waits_five_seconds_for_a_hanging_sink(method: str, caplog: pytest.LogCaptureFixture) -> None:
    release, sink, keeping = threading.Event(), Raising(), Keeping()
    sink.write = keeping.write  # type: ignore[method-assign]
    setattr(sink, method, lambda *_: release.wait())
    telemetry = Telemetry("r", "test", [sink, keeping])
    telemetry.emit(Event("ingest_batch"))
    time.sleep(1.2)  # a tick comes
    started = time.monotonic()
    telemetry.close()
    assert 4.9 < time.monotonic() - started < 6
    assert "sink raising did not finish in 5 s" in caplog.text
    release.set()


def test_files_of_a_run(tmp_path: Path) -> None:
    config = TelemetryConfig(run_dir=str(tmp_path), csv=True)
    with (
        pytest.raises(ValueError, match="no good"),
        Telemetry.open(config, "ingest", run_id="r1", config_text="a: 1\n") as telemetry,
    ):
        telemetry.emit(Event("ingest_batch", "batch=3", {"rows": 5}, rank=None))
        msg = "no good"
        raise ValueError(msg)
    folder = tmp_path / "r1"
    assert (folder / "config.yaml").read_text() == "a: 1\n"
    events = [Event.from_dict(json.loads(line)) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert [e.kind for e in events] == ["run", "ingest_batch", "run"]
    assert events[-1].labels["outcome"] == "ValueError: no good"
    assert ",ingest_batch,batch=3,,rows,5" in (folder / "events.csv").read_text()


def test_a_run_folder_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with Telemetry.open(TelemetryConfig(run_dir=str(tmp_path / "file")), "x") as telemetry:
        assert telemetry.folder is None


def test_metrics_table_round_trip(watched: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "metrics")
    config = TelemetryConfig(run_dir=str(tmp_path), metrics_table=table)
    event = Event("train_epoch", "epoch=1", {"train_loss": 0.5, "epoch": 1}, {"note": "ok"}, rank=2)
    with Telemetry.open(config, "train", watched, run_id="r2") as telemetry:
        telemetry.emit(event)
    rows = watched.read.format("delta").load(table).where("kind = 'train_epoch'").collect()
    assert len(rows) == 1
    row = rows[0].asDict()
    assert (row["run_id"], row["job"], row["scope"], row["rank"]) == ("r2", "train", "epoch=1", 2)
    assert row["numbers"] == {"train_loss": 0.5, "epoch": 1.0}
    assert row["labels"] == {"note": "ok"}
    assert row["time"].timestamp() == pytest.approx(event.time.timestamp(), abs=0.001)


def test_the_metrics_table_is_not_measured_itself(watched: SparkSession, tmp_path: Path) -> None:
    config = TelemetryConfig(run_dir=str(tmp_path), metrics_table=str(tmp_path / "metrics"))
    with Telemetry.open(config, "train", watched, run_id="r3"):
        pass
    with Telemetry.open(TelemetryConfig(run_dir=str(tmp_path)), "train", watched, run_id="r4"):
        pass  # takes the stages that r3's table left in the listener, if any
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "r4" / "events.jsonl").read_text().splitlines()]
    assert kinds == ["run", "run"]
