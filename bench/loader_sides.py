"""One side of `bench/loader.py` in a process of its own: a pass over the rows for each line on standard input.

    python bench/loader_sides.py SIDE JSON

A peer's side runs in that peer's environment, so this module imports nothing of the project at its top.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Pass = Callable[[], int]
"""Loads all rows once and returns how many there were."""


@dataclass(frozen=True)
class Work:
    """What a side loads."""

    table: str
    """Path of the samples table."""

    files: list[str]
    """Its training files."""

    input: str
    dtype: str
    shape: list[int]
    batch: int
    window: int
    """Rows that are shuffled together."""

    folder: str
    """For copies in a peer's own format."""


def measured(one_pass: Pass) -> dict[str, float]:
    """Run a pass; return its rows, CPU seconds of all threads and ended children, and wall seconds."""
    cpu, begin = _cpu_s(), time.perf_counter()
    rows = one_pass()
    return {"rows": rows, "cpu_s": _cpu_s() - cpu, "wall_s": time.perf_counter() - begin}


def _cpu_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def kbit(work: Work) -> Pass:
    """Return an epoch of the training loader, shuffled, as rank 0 of 1."""
    from kbit_spark.datasets.batches import Source, training_batches
    from kbit_spark.datasets.row_groups import list_row_groups
    from kbit_spark.datasets.rows import Columns
    from kbit_spark.datasets.sharding import plan_epoch
    from kbit_spark.tables.snapshot import resolve

    snapshot = resolve(work.table)
    groups = list_row_groups(snapshot.of_split("train"))
    source = Source(groups, Columns(work.input, "label", snapshot.tensors[work.input], 10), 0, 1)
    plan = plan_epoch([g.rows for g in groups], seed=0, epoch=0, global_batch=work.batch, window_rows=work.window)
    return lambda: sum(len(batch.targets) for batch in training_batches(source, plan))


def arrow_file(work: Work) -> Pass:
    """Return a scan file by file in slices of 1 MiB on one thread, with the reading options that the loader has."""
    import math

    import numpy as np
    import pyarrow.parquet as pq

    slice_rows = min(2**20 // (math.prod(work.shape) * np.dtype(work.dtype).itemsize), 2**16)

    def scan() -> int:
        rows = 0
        for path in work.files:
            with pq.ParquetFile(path, pre_buffer=False, buffer_size=2**16) as file:
                for batch in file.iter_batches(slice_rows, columns=[work.input, "label"], use_threads=False):
                    rows += batch.num_rows
        return rows

    return scan


def arrow_dataset(work: Work) -> Pass:
    """Return a scan by pyarrow.dataset as it comes."""
    import pyarrow.dataset as ds

    dataset = ds.dataset(work.files)
    return lambda: sum(batch.num_rows for batch in dataset.to_batches(columns=[work.input, "label"]))


def petastorm(work: Work) -> Pass:
    """Return an epoch of Petastorm's batch reader and batched loader, shuffled in a queue of a window's rows."""
    import warnings

    import numpy as np
    import torch
    from petastorm import TransformSpec, make_batch_reader
    from petastorm.pytorch import BatchedDataLoader

    warnings.simplefilter("ignore")
    dtype, shape = np.dtype(work.dtype).type, tuple(work.shape)

    def tensors(frame: Any) -> Any:
        frame[work.input] = [np.frombuffer(value, dtype).reshape(shape) for value in frame[work.input]]
        return frame

    spec = TransformSpec(tensors, edit_fields=[(work.input, dtype, shape, False)])
    urls = [f"file://{file}" for file in work.files]  # it takes %20 as it reads

    def epoch() -> int:
        reader = make_batch_reader(urls, schema_fields=[work.input, "label"], transform_spec=spec, workers_count=2)
        with BatchedDataLoader(reader, work.batch, shuffling_queue_capacity=work.window) as batches:
            rows = 0
            for batch in batches:
                if not (isinstance(batch[work.input], torch.Tensor) and batch[work.input].shape[1:] == shape):
                    raise TypeError(batch[work.input])
                rows += len(batch["label"])
            return rows

    return epoch


def streaming(work: Work) -> Pass:
    """Return an epoch of mosaicml-streaming from a copy of the rows in its own format, in DataLoader's own process."""
    import math

    import numpy as np
    import pyarrow.parquet as pq
    from streaming import MDSWriter, StreamingDataset
    from torch.utils.data import DataLoader

    local = Path(work.folder) / "mds"
    columns = {work.input: f"ndarray:{work.dtype}:{','.join(map(str, work.shape))}", "label": "int"}
    with MDSWriter(out=str(local), columns=columns) as out:
        for path in work.files:
            table = pq.ParquetFile(path).read(columns=[work.input, "label"])
            for value, label in zip(*(table[name].to_pylist() for name in (work.input, "label")), strict=True):
                out.write({work.input: np.frombuffer(value, work.dtype).reshape(work.shape), "label": label})
    dataset = StreamingDataset(
        local=str(local), shuffle=True, batch_size=work.batch, shuffle_block_size=max(work.window, 2**13)
    )

    def epoch() -> int:
        rows = 0
        for batch in DataLoader(dataset, batch_size=work.batch):
            assert math.prod(batch[work.input].shape[1:]) == math.prod(work.shape)
            rows += len(batch["label"])
        return rows

    return epoch


SIDES: dict[str, Callable[[Work], Pass]] = {
    side.__name__: side for side in (kbit, arrow_file, arrow_dataset, petastorm, streaming)
}


def serve(side: str, work: Work) -> None:
    """Answer each line on standard input with the measure of one pass; the first answer says that all is ready."""
    import torch

    torch.set_num_threads(1)
    one_pass = SIDES[side](work)
    answers = sys.stdout
    sys.stdout = sys.stderr  # peers print
    one_pass()  # the first pass imports and compiles
    answers.write("ready\n")
    answers.flush()
    for _ in sys.stdin:
        answers.write(json.dumps(measured(one_pass)) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(sys.argv[1], Work(**json.loads(sys.argv[2])))
