"""The columns that an Avro record becomes, and which of its fields each of them is read from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kbit_spark.codecs.avro_schema import AvroField, AvroType
from kbit_spark.codecs.plan import Plan, plan_of_tensor
from kbit_spark.column_types import TypeTree
from kbit_spark.schemas.fields import FieldSpec


@dataclass(frozen=True)
class Wanted:
    """What a value is to become: a column's type, or a tensor; `reader` is the reader's type, where one is known."""

    tree: TypeTree
    required: bool = False
    reader: AvroType | None = None
    tensor: Plan | None = None


@dataclass(frozen=True)
class Column:
    """A field of a row: its names in payloads, the first that there is counts, and its field in the reader's schema."""

    name: str
    names: tuple[str, ...]
    wanted: Wanted
    reader: AvroField | None


class Unresolved(Exception):  # noqa: N818 - it is what a pair of types is
    """A type that can never be read as what is wanted; `path` leads to the field."""

    def __init__(self, reason: str, code: str = "type_mismatch", path: tuple[str, ...] = ()) -> None:
        super().__init__(f"field {'.'.join(path)!r} can never be read: {reason}" if path else reason)
        self.reason = reason
        self.code = code
        self.path = path

    def inside(self, name: str) -> Unresolved:
        """Return the fault as one of a record that has `name` for a field."""
        return Unresolved(self.reason, self.code, (name, *self.path))


def column_of_field(field: FieldSpec, reader: AvroType | None) -> Column:
    """Return a column of the row; `reader` is the record of the reader's schema."""
    tensor = plan_of_tensor(field) if field.tensor else None
    return _column(field.name, field.wire_names, Wanted(field.tree, field.required, tensor=tensor), reader)


def columns_of_struct(tree: TypeTree, reader: AvroType | None) -> list[Column]:
    """Return the columns of a nested record."""
    assert isinstance(tree, dict)
    return [
        _column(inner["name"], (inner["name"],), Wanted(inner["type"], inner["required"]), reader)
        for inner in tree["fields"]
    ]


def _column(name: str, names: tuple[str, ...], wanted: Wanted, record: AvroType | None) -> Column:
    field = _reader_field(names, record)
    if field is None:
        return Column(name, names, wanted, None)
    wanted = Wanted(wanted.tree, wanted.required, field.type, wanted.tensor)
    return Column(name, (*names, field.name, *field.aliases), wanted, field)


def _reader_field(names: tuple[str, ...], record: AvroType | None) -> AvroField | None:
    """Return the reader's field that has one of the names, or had it."""
    fields = [] if record is None else record.fields
    named = [field for name in names for field in fields if field.name == name]
    renamed = [field for name in names for field in fields if name in field.aliases]
    return next(iter([*named, *renamed]), None)


def match_columns(writer: AvroType, columns: Sequence[Column]) -> dict[str, int]:
    """Return which column each of the writer's fields becomes.

    Raises:
        Unresolved: two columns are read from one field.
    """
    written = {field.name for field in writer.fields}
    taken: dict[str, int] = {}
    for index, column in enumerate(columns):
        name = next((name for name in column.names if name in written), None)
        if name is None:
            continue
        if name in taken:
            msg = f"{columns[taken[name]].name!r} is read from {name} too"
            raise Unresolved(msg, path=(column.name,))
        taken[name] = index
    return taken


def has_default(column: Column) -> bool:
    """Tell whether the reader's schema says what stands for an absent field."""
    return column.reader is not None and column.reader.has_default


def require_defaults(writer: AvroType, absent: Sequence[Column]) -> None:
    """Make sure that every absent column has a default; a nullable type of the reader's schema is none.

    Raises:
        Unresolved: the record lacks a field, with the code ``missing_field``.
    """
    missing = [c.names[0] for c in absent if not has_default(c) and (c.wanted.required or c.reader is not None)]
    if missing:
        known = ", ".join(field.name for field in writer.fields)
        msg = f"record {writer.name} has no field {', '.join(missing)}; it has {known}"
        raise Unresolved(msg, "missing_field")
