"""Rows of one length straight from the pages of a Parquet file: views of a page, not copies in Arrow's memory.

pyarrow gives no access to pages, decodes a row group from its first row on, and copies each value. What trainers read
is simpler than all of Parquet: values of one length, none of them null, PLAIN or in a dictionary, in version 1 pages.
That is read here. Anything else, and any damage, ends the rows early: the caller asks pyarrow for the rest, which knows
all of Parquet and tells what is wrong with a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from numpy.typing import NDArray

from kbit_spark.datasets.columns import whole_rows
from kbit_spark.datasets.page_format import (
    DATA_PAGE,
    DICTIONARY_PAGE,
    PLAIN,
    PLAIN_DICTIONARY,
    RLE_DICTIONARY,
    PageHeader,
    UnusualPageError,
    all_ones,
    decode_runs,
    varint,
)

HEADER_BYTES = 2**14
"""Bytes that are read for a page's header, which may hold the least and the greatest value, twice."""

PIECE_BYTES = 2**20
"""Bytes of rows that are looked up in a dictionary at once."""

_CODECS = {"UNCOMPRESSED": None, "SNAPPY": "snappy", "ZSTD": "zstd"}


@dataclass(frozen=True)
class Chunk:
    """A column of one row group: the bytes `[begin, end)` of a file.

    Args:
        begin: where its first page begins.
        end: where its last page ends.
        rows: number of its values.
        codec: Arrow's name of its compression, None for none.
        optional: values may be null, so each page tells which are not.
        prefix: bytes of the length before each value.
        nbytes: bytes of each value.
    """

    begin: int
    end: int
    rows: int
    codec: str | None
    optional: bool
    prefix: int
    nbytes: int

    @classmethod
    def of(cls, parquet: Any, group: int, name: str, nbytes: int) -> Chunk | None:
        """Return the column `name` of an open file's row group, None for one that is not read here."""
        kind, metadata = parquet.schema_arrow.field(name).type, parquet.metadata
        index = next((i for i in range(metadata.num_columns) if metadata.schema.column(i).path == name), None)
        if index is None or not (pat.is_binary(kind) or pat.is_large_binary(kind) or pat.is_fixed_size_binary(kind)):
            return None
        column, schema = metadata.row_group(group).column(index), metadata.schema.column(index)
        fixed = schema.physical_type == "FIXED_LEN_BYTE_ARRAY"
        if (
            column.file_path
            or column.compression not in _CODECS
            or schema.max_repetition_level
            or schema.max_definition_level > 1
            or (fixed and schema.length != nbytes)
        ):
            return None
        begin = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
        return cls(
            begin,
            begin + column.total_compressed_size,
            column.num_values,
            _CODECS[column.compression],
            schema.max_definition_level == 1,
            0 if fixed else 4,
            nbytes,
        )


def page_rows(file: Any, chunk: Chunk, first: int) -> Iterator[NDArray[np.uint8]]:
    """Yield the rows of `chunk` from row `first` on, uint8 of shape (rows, nbytes), read-only; they may end early.

    Pages before row `first` are not read.

    Args:
        file: an open Arrow file.
        chunk: which bytes of it.
        first: number of the first row in the row group.
    """
    try:
        yield from _Pages(file, chunk).rows(first)
    except (UnusualPageError, OSError, pa.ArrowException, ValueError):  # numpy's, of shapes that no bytes have
        return


class _Pages:
    def __init__(self, file: Any, chunk: Chunk) -> None:
        self._file, self._chunk = file, chunk
        self._codec = None if chunk.codec is None else pa.Codec(chunk.codec)
        self._dictionary_page: tuple[int, PageHeader] | None = None
        self._dictionary: NDArray[np.uint8] | None = None

    def rows(self, first: int) -> Iterator[NDArray[np.uint8]]:
        begin = 0
        for position, header in self._headers():
            if header.kind == DICTIONARY_PAGE:
                self._dictionary_page = position, header
                continue
            if (end := begin + header.values) > first:
                yield from self._of_page(position, header, max(0, first - begin))
            begin = end

    def _headers(self) -> Iterator[tuple[int, PageHeader]]:
        """Yield where the bytes of each page begin, behind its header, and the header."""
        position, end, rows = self._chunk.begin, self._chunk.end, self._chunk.rows
        while rows > 0:
            self._file.seek(position)
            header = PageHeader.parse(self._file.read(max(0, min(HEADER_BYTES, end - position))))
            position += header.size
            rows -= header.values if header.kind == DATA_PAGE else 0
            if position + header.compressed > end or rows < 0:
                msg = "a page behind the end"
                raise UnusualPageError(msg)
            yield position, header
            position += header.compressed

    def _of_page(self, position: int, header: PageHeader, skip: int) -> Iterator[NDArray[np.uint8]]:
        values = self._without_levels(self._bytes(position, header), header)
        if header.encoding == PLAIN:
            self._dictionary = None  # its memory is free: who writes PLAIN once does so to the end
            yield self._grid(values, header.values)[skip:]
        elif header.encoding in (PLAIN_DICTIONARY, RLE_DICTIONARY):
            indices = self._indices(values, header.values)[skip:]
            piece = max(1, PIECE_BYTES // self._chunk.nbytes)
            for begin in range(0, len(indices), piece):
                yield self._looked_up(indices[begin : begin + piece])
        else:
            msg = f"encoding {header.encoding}"
            raise UnusualPageError(msg)

    def _bytes(self, position: int, header: PageHeader) -> NDArray[np.uint8]:
        """Return the bytes of a page, decompressed; a size that its rows cannot need is refused before memory is."""
        size = header.uncompressed
        if size > 64 + header.values * (self._chunk.prefix + self._chunk.nbytes + 2):
            msg = f"{size} bytes for {header.values} values"
            raise UnusualPageError(msg)
        self._file.seek(position)
        stored = self._file.read_buffer(header.compressed)
        begin = stored[:10].to_pybytes()
        # Arrow's Snappy leaves the rest of a page as it is if there is less than was asked for.
        told = varint(begin, 0)[0] if self._chunk.codec == "snappy" else size if self._codec else len(stored)
        if len(stored) != header.compressed or told != size:
            msg = f"{told} bytes where the header says {size}"
            raise UnusualPageError(msg)
        return np.frombuffer(self._codec.decompress(stored, size) if self._codec else stored, dtype=np.uint8)

    def _without_levels(self, page: NDArray[np.uint8], header: PageHeader) -> NDArray[np.uint8]:
        """Return what follows the definition levels, which must say that no value is null."""
        if not self._chunk.optional:
            return page
        size = int.from_bytes(page[:4].tobytes(), "little")
        if not all_ones(page[4 : 4 + size].tobytes(), header.values):
            msg = "a null"
            raise UnusualPageError(msg)
        return page[4 + size :]

    def _grid(self, values: NDArray[np.uint8], count: int) -> NDArray[np.uint8]:
        """Return PLAIN values as rows, without the length before each, which must be that of the tensor."""
        prefix, nbytes = self._chunk.prefix, self._chunk.nbytes
        if len(values) != count * (prefix + nbytes):
            msg = f"{len(values)} bytes for {count} values of {nbytes}"
            raise UnusualPageError(msg)
        grid = values.reshape(count, prefix + nbytes)
        if prefix and not (grid[:, :prefix].view("<u4") == nbytes).all():
            msg = "a value of another length"
            raise UnusualPageError(msg)
        return grid[:, prefix:]

    def _indices(self, values: NDArray[np.uint8], count: int) -> NDArray[np.int64]:
        """Return which of the dictionary's values stands in each row."""
        indices = decode_runs(values[1:].tobytes(), int(values[:1].sum()), count)
        if self._dictionary_page is None or indices.max(initial=0) >= self._dictionary_page[1].values:
            msg = "a value that no dictionary has"
            raise UnusualPageError(msg)
        return indices

    def _looked_up(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        assert self._dictionary_page is not None
        position, header = self._dictionary_page
        if self._dictionary is None:
            if header.encoding not in (PLAIN, PLAIN_DICTIONARY):
                msg = f"encoding {header.encoding} of a dictionary"
                raise UnusualPageError(msg)
            self._dictionary = self._grid(self._bytes(position, header), header.values)
        return whole_rows(self._dictionary)[indices].view(np.uint8).reshape(-1, self._chunk.nbytes)
