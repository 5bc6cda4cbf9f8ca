"""What the ingest job tells of its batches."""

from __future__ import annotations

from collections.abc import Sequence

from kbit_spark.events import Event
from kbit_spark.schemas.ledger import LedgerEntry, Loss


def loss_event(lost: Sequence[Loss]) -> Event:
    """Return the event that tells of records given up by `guard.accept_loss`."""
    counted = [loss.offsets for loss in lost if loss.offsets is not None]
    places = ", ".join(f"{loss.topic}[{loss.partition}] {loss.start} to {loss.end}: {loss.reason}" for loss in lost)
    numbers = {"offsets": sum(counted), "partitions": len(lost), "uncounted": len(lost) - len(counted)}
    return Event(kind="ingest_loss", numbers=numbers, labels={"places": places})


def evolved_event(table: str, batch_id: int, added: Sequence[str]) -> Event:
    """Return the event that tells of columns which a batch brought."""
    labels = {"table": table, "columns": ", ".join(added)}
    return Event(kind="table_evolved", scope=f"batch={batch_id}", numbers={"columns": len(added)}, labels=labels)


def batch_numbers(entry: LedgerEntry, duration_s: float, lag_rows: int | None) -> dict[str, float]:
    """Return what the event of a written batch tells."""
    rows = entry.good + entry.bad + entry.tombstones
    numbers: dict[str, float] = {
        "batch_id": entry.batch_id,
        "rows": rows,
        "good": entry.good,
        "bad": entry.bad,
        "tombstones": entry.tombstones,
        "gaps": entry.gaps,
        "duration_s": duration_s,
        "rows_per_s": rows / max(duration_s, 1e-9),
    }
    if lag_rows is not None:
        numbers["lag_rows"] = lag_rows
    return numbers
