"""Which rows of a file that has left the table are deleted, told by their Kafka coordinates.

A DELETE without deletion vectors writes the rows that stay into other files, together with rows that were there before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kbit_spark.errors import RunError
from kbit_spark.schemas.snapshot import DataFile, Snapshot
from kbit_spark.storage import filesystem

if TYPE_CHECKING:
    import pandas as pd

COORDINATES = ("_topic", "_partition", "_offset")


def deleted_rows(file: DataFile, snapshot: Snapshot) -> NDArray[np.bool_]:
    """Return a mask over the rows of `file`, true where the snapshot has no row of these coordinates any more.

    Raises:
        RunError: a file cannot be read, or the table has no coordinates.
    """
    import pandas as pd  # here: it takes every job's start a quarter of a second, and few tables come to this

    names = [snapshot.stored[name].name if name in snapshot.stored else name for name in COORDINATES]
    own = _coordinates(file, names)
    first, last = own[names[2]].min(), own[names[2]].max()
    parts = (_coordinates(other, names) for other in snapshot.of_split(file.split))
    near = [part[part[names[2]].between(first, last)] for part in parts]
    left = pd.concat([own.iloc[:0], *near])
    kept: NDArray[np.bool_] = pd.MultiIndex.from_frame(own).isin(pd.MultiIndex.from_frame(left))
    return ~kept


def _coordinates(file: DataFile, names: Sequence[str]) -> pd.DataFrame:
    store, inner = filesystem(file.path)
    try:
        with pq.ParquetFile(inner, filesystem=store) as parquet:
            if missing := [name for name in names if name not in parquet.schema_arrow.names]:
                msg = f"{file.path} has no columns {', '.join(missing)}, so nobody can tell which of its rows are left"
                raise RunError(msg, "train anew on the newest version with another checkpoint.dir")
            frame: pd.DataFrame = parquet.read(columns=list(names)).to_pandas()
    except (OSError, pa.ArrowException) as error:
        msg = f"cannot read {file.path}: {' '.join(str(error).split())}"
        raise RunError(msg, "the file is damaged or gone; VACUUM may have taken it") from error
    deleted = file.deleted_rows()
    return frame[list(names)] if deleted is None else frame.loc[~deleted, list(names)]
