"""Reads rows of Parquet row groups in the order of a plan; memory holds a slice of one row group per reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kbit_spark.datasets.row_groups import Footers, RowGroup
from kbit_spark.datasets.rows import Columns, Rows, rows_from
from kbit_spark.datasets.sharding import Segment
from kbit_spark.errors import RunError


class RowGroupReader:
    """Reads segments; consecutive segments of one row group are decoded in one pass.

    Args:
        groups: all row groups, by which segments count.
        columns: what to read of them.
        footers: shared by readers of the same files, in one thread.
    """

    def __init__(self, groups: Sequence[RowGroup], columns: Columns, footers: Footers | None = None) -> None:
        self._groups = groups
        self._columns = columns
        self._footers = footers or Footers()
        self._group: int | None = None
        self._position = 0
        self._decoded: Iterator[Rows] = iter(())
        self._rest: Rows | None = None

    def read(self, segments: Sequence[Segment]) -> Rows:
        """Return the rows of all segments, in order.

        Raises:
            RunError: an unreadable file, a wrong tensor length, a label out of range.
        """
        return Rows.joined(list(self.parts(segments)))

    def parts(self, segments: Sequence[Segment]) -> Iterator[Rows]:
        """Yield the rows of all segments, in order, in the pieces in which they are decoded: views of Arrow's memory.

        Rows are checked by slices, so a wrong row just behind the segments may be refused too.

        Raises:
            RunError: as for `read`.
        """
        for segment in segments:
            yield from self._read(segment)

    def _read(self, segment: Segment) -> Iterator[Rows]:
        group = self._groups[segment.group]
        if (self._group, self._position) != (segment.group, segment.first):
            self._decoded = rows_from(segment.first, group, self._columns, self._footers)
            self._group, self._position, self._rest = segment.group, segment.first, None
        stop = segment.first + segment.rows
        while self._position < stop:
            rows = self._rest or next(self._decoded, None)
            if rows is None:
                msg = f"{group.path}: row group {group.index} ended before its {group.rows} rows"
                raise RunError(msg, "the file is damaged")
            taken = rows.part(0, stop - self._position)
            self._position += len(taken)
            self._rest = rows.part(len(taken), len(rows)) if len(taken) < len(rows) else None
            yield taken
