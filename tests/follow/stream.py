"""A samples table as the stream fills it: commit after commit, with coordinates, times and ledger entries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, WriterProperties, write_deltalake

from kbit_spark.schemas.ledger import LedgerEntry, OffsetRange
from kbit_spark.schemas.snapshot import DataFile
from tests.fixtures.samples import IMAGE, separable

BEGAN = 1_700_000_000.0
"""The time of the record at offset 0; each next one is a second later."""


@dataclass
class Stream:
    """Fills the table at `path`."""

    path: Path
    offset: int = 0

    def append(self, train: int, validation: int = 0, test: int = 0, topic: str = "digits") -> None:
        """Commit the next records of the topic, those to train on first."""
        rows = train + validation + test
        images, labels = separable(rows, seed=self.offset)
        offsets = np.arange(self.offset, self.offset + rows)
        columns = {
            "image": pa.array([image.tobytes() for image in images], pa.binary()),
            "label": pa.array(labels, pa.int32()),
            "_topic": pa.array([topic] * rows),
            "_partition": pa.array([0] * rows, pa.int32()),
            "_offset": pa.array(offsets, pa.int64()),
            "_timestamp": pa.array(((BEGAN + offsets) * 1e6).astype(np.int64), pa.timestamp("us", "UTC")),
            "_split": pa.array(["train"] * train + ["validation"] * validation + ["test"] * test),
        }
        metadata = {"kbit.dtype": IMAGE.dtype, "kbit.shape": str(list(IMAGE.shape))}
        schema = pa.schema(
            [pa.field(name, v.type, metadata=metadata if name == "image" else None) for name, v in columns.items()]
        )
        span = OffsetRange(topic=topic, partition=0, start=self.offset, end=self.offset + rows)
        entry = LedgerEntry(
            stream_id="s", epoch="e", batch_id=self.offset, ranges=(span,), good=rows, bad=0, tombstones=0, gaps=0
        )
        write_deltalake(
            str(self.path),
            pa.table(columns, schema=schema),
            partition_by=["_split"],
            mode="append",
            configuration={"delta.dataSkippingNumIndexedCols": "0"},
            commit_properties=CommitProperties(custom_metadata={"userMetadata": entry.to_metadata()}),
            writer_properties=WriterProperties(max_row_group_size=32, write_batch_size=32),
        )
        self.offset += rows


def offsets_in(files: tuple[DataFile, ...] | list[DataFile]) -> list[int]:
    """Return the offsets of the rows of data files that are not deleted, in order of the files."""
    found: list[int] = []
    for file in files:
        values = pq.ParquetFile(file.path).read(columns=["_offset"]).column(0).to_numpy()
        deleted = file.deleted_rows()
        kept = values if deleted is None else values[~deleted]
        assert len(kept) == file.rows
        found += kept.tolist()
    return found
