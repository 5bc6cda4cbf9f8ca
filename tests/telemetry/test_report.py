import json
import re
from pathlib import Path

from kbit_spark.events import Event
from kbit_spark.schemas.ledger import Rejection
from kbit_spark.telemetry.report import read_events, write_report


def sample_events() -> list[Event]:
    stage = {"stage_id": 1, "tasks": 4, "duration_s": 1.25, "cpu_time_s": 0.5, "shuffle_read_bytes": 2_000_000}
    events = [Event("run", labels={"phase": "start", "job": "train", "config": "model: <cnn>\n"})]
    for i in range(8):
        numbers = {"batch_id": i, "rows": 1000, "good": 990, "bad": 10, "duration_s": 0.5, "rows_per_s": 2000 + 90 * i}
        events.append(Event("ingest_batch", f"batch={i}", numbers))
        name = f"save at writer.py:{i % 3}"
        events.append(Event("spark_stage", f"batch={i}", {**stage, "duration_s": 1.25 + i % 3}, {"stage_name": name}))
        epoch = {"epoch": i, "train_loss": 2 / (i + 1), "validation_loss": 2.2 / (i + 1), "samples_per_s": 5432}
        epoch |= {"train_accuracy": 1 - 0.5 / (i + 1), "validation_accuracy": 1 - 0.6 / (i + 1), "duration_s": 3}
        events.append(Event("train_epoch", f"epoch={i}", {**epoch, "data_wait_share": 0.081}))
        events.extend(
            Event("train_window", "", {"step": 10 * i, "data_wait_share": 0.1 / (i + 1 + r)}, rank=r) for r in (0, 1)
        )
    events.append(Event("train_restart", "", {"attempt": 1, "step": 40}, {"reason": "killed by signal 9"}, rank=1))
    return [*events, Event("train_test", "", {"loss": 0.2, "accuracy": 0.9321, "rows": 100})]


def test_the_report_holds_the_numbers_and_refers_to_nothing_outside(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    log.write_text("".join(json.dumps(e.to_dict()) + "\n" for e in sample_events()) + '{"kind": "ru')
    assert len(read_events([log])) == len(sample_events())
    bad = [
        Rejection(
            topic="digits",
            partition=3,
            offset=91,
            code="truncated",
            reason="ends inside <image>",
            position=12,
            count=80,
        )
    ]
    html = write_report(tmp_path / "report.html", [log], bad).read_text()
    for text in ("7,920", "93.21%", "92.50%", "5,432", "8.1%", "digits[3]@91", "ends inside &lt;image&gt;"):
        assert text in html
    assert "killed by signal 9" in html
    assert "model: &lt;cnn&gt;" in html
    assert html.count("<svg") == 5
    assert not re.search(r'(src|href)="(?!#)', html.replace("xlink:href", "href"))


def test_a_run_without_events_gives_a_report(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    log.write_text("")
    assert "<h1>" in write_report(tmp_path / "report.html", [log]).read_text()


def test_the_report_shows_how_follow_mode_learns(tmp_path: Path) -> None:
    events = [
        Event("follow_window", numbers={
            "window": i, "rows_so_far": 500 * (i + 1), "accuracy": 0.5 + 0.1 * i, "champion_accuracy": 0.45 + 0.1 * i,
            "freshness_s": 8 + i, "oldest_freshness_s": 14 + i,
        }) for i in range(4)
    ]  # fmt: skip
    log = tmp_path / "events.jsonl"
    log.write_text("".join(json.dumps(e.to_dict()) + "\n" for e in events))
    html = write_report(tmp_path / "report.html", [log]).read_text()
    for text in ("Accuracy on the hold-out by rows learnt", "in use before", "From event to model", "oldest row"):
        assert text in html
    assert "Accuracy on the hold-out" not in write_report(tmp_path / "other.html", []).read_text()
