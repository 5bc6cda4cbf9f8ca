"""Reports of runs with their bad records, through the command."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from deltalake import write_deltalake

from kbit_spark.cli.report import make_report
from kbit_spark.config.telemetry import TelemetryConfig
from kbit_spark.errors import UsageError
from kbit_spark.events import Event
from kbit_spark.telemetry.hub import Telemetry
from kbit_spark.telemetry.report import MAX_BAD
from tests.cli.test_main import kbit


def record(offset: int, batch_id: int, reason: str = "ends inside <image>", topic: str = "digits") -> dict[str, object]:
    known = {"topic": topic, "partition": 1, "offset": offset, "code": "truncated", "reason": reason, "position": 12}
    return {**known, "batch_id": batch_id}


def run(folder: Path, run_id: str, batches: dict[int, int], **labels: str) -> Path:
    """Write an ingest run whose batches had so many bad records."""
    tables = {"rejected": str(folder / "rejected")}
    config = {"stream_id": "s", "kafka": {"topics": [{"name": "digits"}]}, "tables": tables}
    settings = TelemetryConfig(run_dir=str(folder / "runs"))
    with Telemetry.open(settings, "ingest", run_id=run_id, config_text=yaml.safe_dump(config)) as telemetry:
        for batch_id, bad in batches.items():
            numbers = {"batch_id": batch_id, "rows": 9, "bad": bad}
            telemetry.emit(Event("ingest_batch", f"batch={batch_id}", numbers, dict(labels)))
    return folder / "runs" / run_id


def test_the_bad_records_of_the_runs_and_no_others(tmp_path: Path) -> None:
    rows = [record(9, 1), record(3, 0), record(4, 2), record(5, 7, "of another run"), record(6, 1, topic="other")]
    write_deltalake(str(tmp_path / "rejected"), pa.Table.from_pylist(rows))
    first, second = run(tmp_path, "first", {0: 1, 1: 1}), run(tmp_path, "second", {1: 1, 2: 1, 3: 0})
    done = kbit("report", str(first), str(second), cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "wrote report.html\n", "")
    html = (tmp_path / "report.html").read_text()
    for text in ("Bad records: 3", "digits[1]@3", "digits[1]@4", "digits[1]@9", "ends inside &lt;image&gt;"):
        assert text in html
    assert "of another run" not in html
    assert "other[1]" not in html


def test_the_batches_of_other_streams_and_epochs_are_others(tmp_path: Path) -> None:
    names: list[tuple[str | None, str | None]] = [("s", "e"), ("s", "before"), ("other", "e"), (None, None)]
    rows = [{**record(i, 0), "stream_id": stream, "epoch": epoch} for i, (stream, epoch) in enumerate(names)]
    write_deltalake(str(tmp_path / "rejected"), pa.Table.from_pylist(rows))
    for labels, wanted in (({"epoch": "e"}, [0, 3]), ({"epoch": "f"}, [3]), ({}, [0, 1, 3])):
        made = make_report(tmp_path / "report.html", [run(tmp_path, f"r-{labels}", {0: 1}, **labels)])
        assert [bad.offset for bad in made.bad] == wanted


def test_a_folder_of_runs_is_all_of_them(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "rejected"), pa.Table.from_pylist([record(3, 0), record(9, 1)]))
    runs = [run(tmp_path, "first", {0: 1}), run(tmp_path, "second", {1: 1})]
    (tmp_path / "runs/empty").mkdir()
    one_by_one = make_report(tmp_path / "report.html", runs)
    for given in ([tmp_path / "runs"], [tmp_path / "runs", runs[0]]):
        made = make_report(tmp_path / "report.html", given)
        assert (len(made.bad), made.bad) == (2, one_by_one.bad)
    with pytest.raises(UsageError, match=f"^no events in {tmp_path}/runs/empty "):
        make_report(tmp_path / "report.html", [*runs, tmp_path / "runs/empty"])


def test_many_bad_records_stand_together_by_reason(tmp_path: Path) -> None:
    rows = [record(offset, 0, "common" if offset else "rare") for offset in range(MAX_BAD + 1)]
    write_deltalake(str(tmp_path / "rejected"), pa.Table.from_pylist(rows))
    made = make_report(tmp_path / "report.html", [run(tmp_path, "r", {0: len(rows)})])
    assert [(r.reason, r.offset, r.position, r.count) for r in made.bad] == [
        ("common", 1, 12, MAX_BAD),
        ("rare", 0, 12, 1),
    ]
    assert f"Bad records: {MAX_BAD + 1}" in made.path.read_text()


def test_a_table_that_is_gone_costs_its_part_only(tmp_path: Path) -> None:
    done = kbit("report", str(run(tmp_path, "r", {0: 1})), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "wrote report.html\n")
    assert done.stderr == f"without some bad records: {tmp_path}/rejected is no Delta table\n"
