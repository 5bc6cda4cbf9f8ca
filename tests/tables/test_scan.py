"""Tables that are none, or of another kind, told apart before anything is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kbit_spark import replay
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.config.load import load
from kbit_spark.errors import RunError
from kbit_spark.tables.rejections import group_letters
from kbit_spark.tables.verify import verify

INGEST = Path(__file__).parents[2] / "kbit_spark/cli/samples/ingest.yaml"
LETTERS = {"topic": ["t"], "partition": [0], "offset": [7]}
ROWS = {f"_{name}": values for name, values in LETTERS.items()}


def replayed(samples: str) -> None:
    replay.replay(load(IngestConfig, INGEST, [f"tables.samples={samples}"]))


READERS: list[tuple[Callable[[str], object], str]] = [
    (lambda table: group_letters(table, 3), "rejected"),
    (verify, "samples"),
    (replayed, "samples"),
]


@pytest.mark.parametrize(("read", "kind"), READERS)
@pytest.mark.parametrize("name", ["nope", "folder", "file"])
def test_what_is_no_table(tmp_path: Path, read: Callable[[str], object], kind: str, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    table = str(tmp_path / name)
    with pytest.raises(RunError) as caught:
        read(table)
    assert caught.value.message == f"{table} is no Delta table"
    assert f"tables.{kind}" in caught.value.hint


@pytest.mark.parametrize(
    ("read", "columns", "said"),
    [
        (lambda table: group_letters(table, 3), ROWS, "is no rejected table: it has no column code"),
        (verify, LETTERS, "is no samples table: it has no column _topic"),
    ],
)
def test_a_table_of_another_kind(
    tmp_path: Path, read: Callable[[str], object], columns: dict[str, list[object]], said: str
) -> None:
    table = str(tmp_path / "t")
    write_deltalake(table, pa.table(columns))
    with pytest.raises(RunError) as caught:
        read(table)
    assert caught.value.message == f"{table} {said}"


def test_a_rejected_table_that_is_samples(tmp_path: Path) -> None:
    samples = str(tmp_path / "t")
    write_deltalake(samples, pa.table(ROWS))
    with pytest.raises(RunError, match="is no rejected table: it has no column topic"):
        verify(samples, samples)
