"""Value types that cross stages: fields and tensors, offset ranges, ledger entries, bad records, table snapshots.

Pure data: this module imports neither pyspark nor torch, so drivers, executors and tests share it.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from kbit_spark.column_types import TypeTree, parse_type

DType = Literal["uint8", "int8", "int16", "int32", "int64", "float32", "float64"]
Split = Literal["train", "validation", "test"]
Engine = Literal["cpu", "gpu"]
"""What decodes a batch and encodes its files."""

SPLITS: tuple[Split, ...] = get_args(Split)
SPLIT_COLUMN = "_split"
OWN_COLUMNS = ("_topic", "_partition", "_offset", "_timestamp", "_key", "_headers", "_schema_id", SPLIT_COLUMN)
MAX_TENSOR_BYTES = 2**31 - 1
"""The JVM holds a BINARY value in one array."""

_ITEM_BYTES: dict[str, int] = {
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float32": 4,
    "float64": 8,
}


class Frozen(BaseModel):
    """An immutable value that refuses unknown keys."""

    # the log gets pydantic's error as the cause of ours, and what was given may be a secret
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Tensor(Frozen):
    """A tensor field: one BINARY column of `nbytes` little-endian bytes in row-major order."""

    dtype: DType
    shape: tuple[int, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _fits_a_column(self) -> Tensor:
        if any(size < 1 for size in self.shape):
            msg = f"every size of a tensor's shape must be at least 1, not {list(self.shape)}"
            raise ValueError(msg)
        if self.nbytes > MAX_TENSOR_BYTES:
            msg = (
                f"a tensor of {self.dtype} {list(self.shape)} has {self.nbytes:,} bytes, more than {MAX_TENSOR_BYTES:,}"
            )
            raise ValueError(msg)
        return self

    @property
    def items(self) -> int:
        """Number of items in one tensor."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of one tensor in the table."""
        return self.items * _ITEM_BYTES[self.dtype]

    def to_metadata(self) -> dict[str, Any]:
        """Return the column metadata that tells a reader dtype and shape."""
        return {"kbit.dtype": self.dtype, "kbit.shape": list(self.shape)}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Tensor | None:
        """Read `to_metadata` back; None where the column is no tensor. The shape may be a list or its JSON text."""
        if "kbit.dtype" not in metadata:
            return None
        shape = metadata["kbit.shape"]
        return cls(dtype=metadata["kbit.dtype"], shape=tuple(json.loads(shape) if isinstance(shape, str) else shape))


class FieldSpec(Frozen):
    """One decoded field of the samples table: a `type` in Spark's DDL spelling (column_types.py), or a `tensor`."""

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    type: str | None = None
    tensor: Tensor | None = None
    required: bool = True
    sources: tuple[str, ...] = ()
    """What the field is called in payloads, if not `name`; a payload or schema has one of them."""

    @field_validator("name")
    @classmethod
    def _not_ours(cls, name: str) -> str:
        if name.lower() in OWN_COLUMNS:  # Spark's names do not tell cases apart
            msg = f"{name} is a column of the table's own; name the field differently and say sources: [{name}]"
            raise ValueError(msg)
        return name

    @field_validator("type")
    @classmethod
    def _known_type(cls, text: str | None) -> str | None:
        if text is not None:
            parse_type(text)
        return text

    @model_validator(mode="after")
    def _one_kind(self) -> FieldSpec:
        if (self.type is None) == (self.tensor is None):
            msg = f"field {self.name!r} needs either a type or a tensor (dtype, shape)"
            raise ValueError(msg)
        return self

    @property
    def tree(self) -> TypeTree:
        """The type as a tree; a tensor is binary."""
        return "binary" if self.type is None else parse_type(self.type)

    @property
    def wire_names(self) -> tuple[str, ...]:
        """What the field may be called in payloads."""
        return self.sources or (self.name,)


class OffsetRange(Frozen):
    """Offsets `start` (inclusive) to `end` (exclusive) of one topic partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def span(self) -> int:
        """Number of offsets, whether or not a record stands at each of them."""
        return self.end - self.start


class Rejection(Frozen):
    """One bad record, or the first of `count` records of a topic with the same code and reason."""

    topic: str
    partition: int
    offset: int
    code: str
    """The class of fault, e.g. ``truncated``."""

    reason: str
    """The fault in words."""

    position: int | None = None
    """Byte in the payload, None where unknown."""

    count: int = 1


def merge_ranges(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Return the same offsets as the fewest ranges, ordered by topic, partition and offset."""
    merged: list[OffsetRange] = []
    for found in sorted(ranges, key=lambda r: (r.topic, r.partition, r.start)):
        last = merged[-1] if merged else None
        if last is None or (last.topic, last.partition) != (found.topic, found.partition) or last.end < found.start:
            merged.append(found)
        elif found.end > last.end:
            merged[-1] = last.model_copy(update={"end": found.end})
    return tuple(r for r in merged if r.span)


class Loss(Frozen):
    """Records of one partition that nobody can read any more: the stream went on at `end` instead of `start`."""

    topic: str
    partition: int
    start: int
    """The offset that the stream had reached."""

    end: int
    """The offset where it went on; below `start` where the topic began anew."""

    reason: Literal["retention", "recreated", "truncated"]

    @property
    def offsets(self) -> int | None:
        """Number of offsets that were lost; None where the topic began anew, so that nobody knows."""
        return self.end - self.start if self.reason == "retention" else None


class LedgerEntry(Frozen):
    """What one batch read and where each of its records went; stored in the commit's userMetadata.

    Invariant: ``sum(range.span) == good + bad + tombstones + gaps``. Gaps are offsets without a record (transaction
    markers, compaction); tombstones are records with a null value.
    """

    stream_id: str
    epoch: str
    batch_id: int
    ranges: tuple[OffsetRange, ...]
    good: int
    bad: int
    tombstones: int
    gaps: int
    topic_ids: dict[str, str] = Field(default_factory=dict)
    """Kafka's own ids of the topics, which change when a topic is made anew; empty where Kafka was not asked."""

    lost: tuple[Loss, ...] = ()
    """What was given up before this batch, the first of its epoch."""

    @model_validator(mode="after")
    def _balanced(self) -> LedgerEntry:
        span = sum(r.span for r in self.ranges)
        told = self.good + self.bad + self.tombstones + self.gaps
        if span != told or min(self.good, self.bad, self.tombstones, self.gaps) < 0:
            msg = (
                f"batch {self.batch_id}: {span} offsets, but good={self.good} bad={self.bad} "
                f"tombstones={self.tombstones} gaps={self.gaps}"
            )
            raise ValueError(msg)
        return self

    def to_metadata(self) -> str:
        """Return the entry as the text that a commit's userMetadata holds."""
        return json.dumps({"kbit": self.model_dump(mode="json", exclude_defaults=True)}, separators=(",", ":"))

    @classmethod
    def from_metadata(cls, text: str | None) -> LedgerEntry | None:
        """Read `to_metadata` back; None for a commit that holds no ledger entry."""
        try:
            document = json.loads(text or "null")
        except ValueError:
            return None
        entry = document.get("kbit") if isinstance(document, dict) else None
        return cls.model_validate(entry) if isinstance(entry, dict) and "batch_id" in entry else None


class ReplayEntry(Frozen):
    """What one replay of dead letters brought into the table; stored in the commit's userMetadata."""

    stream_id: str
    number: int
    """Counts the replays of the stream from 0; the version of their Delta transaction."""

    where: str
    """Which letters were asked for, in SQL."""

    rejected_version: int
    """The version of the rejected table that they were read from."""

    good: int
    bad: int
    """Letters that are still bad."""

    def to_metadata(self) -> str:
        """Return the entry as the text that a commit's userMetadata holds."""
        return json.dumps({"kbit_replay": self.model_dump(mode="json")}, separators=(",", ":"))

    @classmethod
    def from_metadata(cls, text: str | None) -> ReplayEntry | None:
        """Read `to_metadata` back; None for a commit that is no replay."""
        try:
            document = json.loads(text or "null")
        except ValueError:
            return None
        entry = document.get("kbit_replay") if isinstance(document, dict) else None
        return None if entry is None else cls.model_validate(entry)


Places = dict[tuple[str, int], int]
"""(topic, partition) to an offset."""


@dataclass(frozen=True)
class LedgerState:
    """How far a stream has come, by the commits of its table."""

    last: LedgerEntry | None
    """The newest entry; None where there is none."""

    reached: Places
    """The next offset of each partition."""

    topic_ids: dict[str, str]
    """The newest id of each topic that is known."""

    complete: bool = True
    """Whether the table's log holds all its commits, so that a missing entry means that there never was one."""

    taken: Mapping[str, str] = field(default_factory=dict)
    """Topics that the stream has not read, but another one has into the same table: topic to stream id."""


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
