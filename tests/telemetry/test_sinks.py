"""Files that a run goes on with after it was killed."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from kbit_spark.events import Event
from kbit_spark.telemetry.report import read_events
from kbit_spark.telemetry.sinks import Csv, JsonLines


@pytest.mark.parametrize("cut", [0, 1, 9])
def test_a_line_that_a_killed_run_has_left_half_written_costs_no_other(tmp_path: Path, cut: int) -> None:
    lines, table = tmp_path / "events.jsonl", tmp_path / "events.csv"
    for names in (("a", "b"), ("c", "d")):
        for sink in (JsonLines(lines), Csv(table)):
            for name in names:
                sink.write(Event("run", name, labels={"text": "two\nlines"}))
            sink.close()
        if names[0] == "a":
            lines.write_bytes(lines.read_bytes()[: -cut or None])
            table.write_bytes(table.read_bytes().replace(b"two\nlines", b"text")[: -cut or None])
    left = ["a", "b"] if cut < 2 else ["a"]
    assert [event.scope for event in read_events([lines])] == [*left, "c", "d"]
    scopes = [row["scope"] for row in csv.DictReader(table.open(newline=""))]
    assert scopes[:1] + scopes[-2:] == ["a", "c", "d"]
