"""Column types in Spark's DDL spelling, as plain trees that plans, Spark schemas and errors are made from.

A tree is the name of a scalar, or ``{"type": "decimal", "precision", "scale"}``, ``{"type": "array", "items"}``,
``{"type": "map", "keys", "values"}``, ``{"type": "struct", "fields": [{"name", "type", "required"}]}``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

TypeTree = str | dict[str, Any]

_NAMES: dict[str, str] = {
    "boolean": "boolean",
    **dict.fromkeys(("tinyint", "byte"), "byte"),
    **dict.fromkeys(("smallint", "short"), "short"),
    **dict.fromkeys(("int", "integer"), "int"),
    **dict.fromkeys(("bigint", "long"), "long"),
    **dict.fromkeys(("float", "real"), "float"),
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    **dict.fromkeys(("timestamp", "timestamp_ltz"), "timestamp"),
    "timestamp_ntz": "timestamp_ntz",
}
MAX_PRECISION = 38
_TOKEN = re.compile(r"\s*(?:([A-Za-z_][A-Za-z0-9_]*|`[^`]+`)|(\d+)|([<>(),:]))")


@dataclass(frozen=True)
class TypedColumn:
    """One column of a DDL text: ``name TYPE [NOT NULL]``."""

    name: str
    type: TypeTree
    required: bool

    def to_tree(self) -> dict[str, Any]:
        """Return the column as a field of a struct's tree."""
        return {"name": self.name, "type": self.type, "required": self.required}


@cache
def parse_type(text: str) -> TypeTree:
    """Return the tree of a type such as ``array<struct<x: int not null, y: decimal(9,2)>>``; case does not matter.

    Raises:
        ValueError: it is none; the message names the character where it breaks.
    """
    reader = _Reader(text)
    tree = reader.type()
    reader.end()
    return tree


def parse_columns(text: str) -> list[TypedColumn]:
    """Return the columns of a DDL text such as ``image array<int> not null, label int``.

    Raises:
        ValueError: see `parse_type`.
    """
    reader = _Reader(text)
    columns = reader.columns(end="")
    reader.end()
    return columns


def type_text(tree: TypeTree) -> str:
    """Return a tree as the text that `parse_type` reads."""
    if isinstance(tree, str):
        return tree
    match tree["type"]:
        case "array":
            return f"array<{type_text(tree['items'])}>"
        case "map":
            return f"map<{type_text(tree['keys'])},{type_text(tree['values'])}>"
        case "decimal":
            return f"decimal({tree['precision']},{tree['scale']})"
    fields = [
        f"`{field['name']}`: {type_text(field['type'])}{' not null' * field['required']}" for field in tree["fields"]
    ]
    return f"struct<{', '.join(fields)}>"


def nullable_inside(tree: TypeTree) -> TypeTree:
    """Return the tree of the same type whose structs take null in every field."""
    if isinstance(tree, str):
        return tree
    if "fields" in tree:
        fields = [{**field, "type": nullable_inside(field["type"]), "required": False} for field in tree["fields"]]
        return {**tree, "fields": fields}
    parts = ("items", "keys", "values")
    return {part: nullable_inside(inner) if part in parts else inner for part, inner in tree.items()}


class _Reader:
    """Reads a type from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._tokens: list[tuple[str, int]] = []
        while self._at < len(text.rstrip()):
            match = _TOKEN.match(text, self._at)
            if match is None:
                self._fail("an unexpected character", self._at)
            self._tokens.append((match.group(match.lastindex or 0), match.start(match.lastindex or 0)))
            self._at = match.end()
        self._next = 0

    def type(self) -> TypeTree:
        name, at = self._word("a type")
        kind = name.lower()
        if kind == "array":
            self._expect("<")
            items = self.type()
            self._expect(">")
            return {"type": "array", "items": items}
        if kind == "map":
            self._expect("<")
            keys = self.type()
            self._expect(",")
            values = self.type()
            self._expect(">")
            return {"type": "map", "keys": keys, "values": values}
        if kind == "struct":
            self._expect("<")
            fields = self.columns(end=">")
            self._expect(">")
            return {"type": "struct", "fields": [field.to_tree() for field in fields]}
        if kind in ("decimal", "dec", "numeric"):
            return self._decimal(at)
        if kind not in _NAMES:
            self._fail(f"{name!r} is no type; known: {', '.join(_NAMES)}, decimal, array, map, struct", at)
        return _NAMES[kind]

    def columns(self, end: str) -> list[TypedColumn]:
        columns = [self._column()]
        while self._peek() not in (end, ""):
            self._expect(",")
            columns.append(self._column())
        names = {column.name.lower() for column in columns}  # Spark's names do not tell cases apart
        if len(names) < len(columns):
            self._fail("a name stands there twice", 0)
        return columns

    def end(self) -> None:
        if self._next < len(self._tokens):
            self._fail("something is left over", self._tokens[self._next][1])

    def _column(self) -> TypedColumn:
        name, _ = self._word("a name")
        if self._peek() == ":":
            self._next += 1
        tree = self.type()
        required = self._peek().lower() == "not"
        if required:
            self._next += 1
            word, at = self._word("NULL")
            if word.lower() != "null":
                self._fail("expected NULL behind NOT", at)
        return TypedColumn(name.strip("`"), tree, required)

    def _decimal(self, at: int) -> TypeTree:
        precision, scale = 10, 0
        if self._peek() == "(":
            self._next += 1
            precision = self._number()
            if self._peek() == ",":
                self._next += 1
                scale = self._number()
            self._expect(")")
        if not 1 <= precision <= MAX_PRECISION or scale > precision:
            self._fail(f"a decimal has 1 to {MAX_PRECISION} digits, and no more behind the point", at)
        return {"type": "decimal", "precision": precision, "scale": scale}

    def _peek(self) -> str:
        return self._tokens[self._next][0] if self._next < len(self._tokens) else ""

    def _take(self, wanted: str) -> tuple[str, int]:
        if self._next == len(self._tokens):
            self._fail(f"expected {wanted}", len(self._text))
        self._next += 1
        return self._tokens[self._next - 1]

    def _word(self, wanted: str) -> tuple[str, int]:
        token, at = self._take(wanted)
        if not re.match(r"[A-Za-z_`]", token):
            self._fail(f"expected {wanted}, found {token!r}", at)
        return token, at

    def _number(self) -> int:
        token, at = self._take("a number")
        if not token.isdigit():
            self._fail(f"expected a number, found {token!r}", at)
        return int(token)

    def _expect(self, wanted: str) -> None:
        token, at = self._take(repr(wanted))
        if token != wanted:
            self._fail(f"expected {wanted!r}, found {token!r}", at)

    def _fail(self, what: str, at: int) -> NoReturn:
        msg = f"{self._text!r}, character {at + 1}: {what}"
        raise ValueError(msg)
