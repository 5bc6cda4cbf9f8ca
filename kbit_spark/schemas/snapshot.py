"""One version of a samples table as ranks read it."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from kbit_spark.schemas.base import Frozen
from kbit_spark.schemas.fields import DType, Split, Tensor
from kbit_spark.schemas.ledger import OffsetRange


class DataFile(Frozen):
    """One data file of a snapshot: its absolute path or URI, its rows, and the split that all of them belong to."""

    path: str
    rows: int
    """Rows that are part of the table."""

    split: Split
    deleted: bytes = b""
    """Which of the file's rows are deleted, as `pack_rows` makes it; empty where none is."""

    constants: dict[str, int] = Field(default_factory=dict)
    """Values of integer partition columns, which the file itself does not hold."""

    def deleted_rows(self) -> NDArray[np.bool_] | None:
        """Return a mask over the file's rows, true where the row is deleted; None where none is."""
        return unpack_rows(self.deleted) if self.deleted else None


def pack_rows(mask: NDArray[np.bool_]) -> bytes:
    """Return a mask of rows as a compressed bit field behind the number of rows (8 bytes, little-endian)."""
    return len(mask).to_bytes(8, "little") + zlib.compress(np.packbits(mask).tobytes())


def unpack_rows(packed: bytes) -> NDArray[np.bool_]:
    """Read `pack_rows` back."""
    bits = np.frombuffer(zlib.decompress(packed[8:]), dtype=np.uint8)
    return np.unpackbits(bits, count=int.from_bytes(packed[:8], "little")).astype(np.bool_)


class StoredColumn(Frozen):
    """How a table with column mapping names a column inside its files."""

    name: str
    field_id: int | None = None
    """Decides instead of the name where the table maps by id."""


class Snapshot(Frozen):
    """One version of a samples table, resolved once on the driver; ranks read the files it names and nothing else."""

    table: str
    table_id: str
    version: int
    files: tuple[DataFile, ...]
    tensors: dict[str, Tensor]
    arrays: dict[str, DType] = Field(default_factory=dict)
    """Columns of numeric arrays, which become tensors once their shape is told."""

    columns: tuple[str, ...] = ()
    """Names of all columns; empty where nobody has asked for them."""

    stored: dict[str, StoredColumn] = Field(default_factory=dict)
    """Names inside the files, for tables with column mapping."""

    kafka: tuple[OffsetRange, ...] = ()
    """Offsets that were read into the table up to this version, merged for each topic partition."""

    kafka_complete: bool = True
    """Whether every commit up to this version could still be asked for its offsets."""

    def of_split(self, split: Split) -> tuple[DataFile, ...]:
        """Return the files of one split, in a stable order."""
        return tuple(sorted((f for f in self.files if f.split == split), key=lambda f: f.path))

    def rows(self, split: Split) -> int:
        """Return the number of rows of one split."""
        return sum(f.rows for f in self.files if f.split == split)
