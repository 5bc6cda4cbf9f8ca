import io

from rich.console import Console as RichConsole

from kbit_spark.events import Event
from kbit_spark.telemetry.console import Console


def shown(terminal: bool, *events: Event) -> str:
    text = io.StringIO()
    sink = Console(RichConsole(file=text, force_terminal=terminal, width=200, highlight=False))
    for event in events:
        sink.write(event)
    sink.close()
    return text.getvalue()


BATCH = Event("ingest_batch", "batch=3", {"batch_id": 3, "rows_per_s": 1234.5, "lag_rows": 7, "good": 10, "bad": 1})


def test_plain_lines_without_a_terminal() -> None:
    text = shown(False, BATCH, Event("spark_stage"), Event("train_window", numbers={"step": 9}, rank=1))
    assert text == "batch 3  1,234 rows/s  lag 7  good 10  bad 1  0.00 s\n"


def test_one_live_line_on_a_terminal() -> None:
    assert "1,234 rows/s" in shown(True, BATCH)
