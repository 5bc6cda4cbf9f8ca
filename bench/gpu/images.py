"""A samples table of random images, of any size, in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import WriterProperties, write_deltalake

from bench.tables import samples_schema
from kbit_spark.schemas.fields import Tensor


def write_images(path: Path, shape: tuple[int, ...], rows: int) -> None:
    """Write random images with random labels, all for training, as the ingest job would: row groups of some 8 MiB.

    There are few different images, so that Parquet's dictionary holds them and the files stay small.
    """
    random, size = np.random.default_rng(0), int(np.prod(shape))
    pool = pa.array([random.bytes(size) for _ in range(2**19 // size)], pa.binary())
    schema = samples_schema("image", Tensor(dtype="uint8", shape=shape))
    write_deltalake(
        str(path),
        pa.RecordBatchReader.from_batches(schema, _images(schema, pool, rows, random)),
        partition_by=["_split"],
        target_file_size=2**28,
        writer_properties=WriterProperties(max_row_group_size=2**23 // size, compression="UNCOMPRESSED"),
    )


def _images(schema: pa.Schema, pool: pa.Array, rows: int, random: np.random.Generator) -> Iterator[pa.RecordBatch]:
    for begin in range(0, rows, 2**15):
        count = min(2**15, rows - begin)
        columns = [
            pool.take(pa.array(random.integers(len(pool), size=count))),
            pa.array(random.integers(10, size=count), pa.int32()),
            pa.array(["train"] * count),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
