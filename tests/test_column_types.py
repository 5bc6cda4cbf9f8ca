"""Column types in DDL spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbit_spark.column_types import TypeTree, parse_columns, parse_type, type_text

SCALARS = ("boolean", "byte", "short", "int", "long", "float", "double", "string", "binary", "date", "timestamp")


def trees() -> st.SearchStrategy[TypeTree]:
    decimals = st.integers(1, 38).flatmap(
        lambda p: st.integers(0, p).map(lambda s: {"type": "decimal", "precision": p, "scale": s})
    )

    def wider(inner: st.SearchStrategy[TypeTree]) -> st.SearchStrategy[TypeTree]:
        field = st.tuples(inner, st.booleans())
        structs = st.lists(field, min_size=1, max_size=3).map(
            lambda fields: {
                "type": "struct",
                "fields": [{"name": f"f{i}", "type": t, "required": r} for i, (t, r) in enumerate(fields)],
            }
        )
        arrays = inner.map(lambda items: {"type": "array", "items": items})
        maps = inner.map(lambda values: {"type": "map", "keys": "string", "values": values})
        return arrays | maps | structs

    return st.recursive(st.sampled_from(SCALARS) | decimals, wider, max_leaves=6)


@given(trees(), st.booleans())
def test_what_is_spelled_is_read_back(tree: TypeTree, upper: bool) -> None:
    text = type_text(tree)
    assert parse_type(text) == tree
    if upper and "struct" not in text:  # names keep their case
        assert parse_type(text.upper()) == tree


def test_columns() -> None:
    columns = parse_columns("image ARRAY<INT> NOT NULL, label BIGINT, `a b` STRUCT<x: DECIMAL(4,2) NOT NULL>")
    assert [(c.name, c.required) for c in columns] == [("image", True), ("label", False), ("a b", False)]
    inner = {"name": "x", "type": {"type": "decimal", "precision": 4, "scale": 2}, "required": True}
    assert columns[2].type == {"type": "struct", "fields": [inner]}
    assert columns[1].type == "long"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("array<int", "character 10: expected '>'"),
        ("arry<int>", "character 1: 'arry' is no type"),
        ("map<int>", "character 8: expected ','"),
        ("decimal(39,2)", "1 to 38 digits"),
        ("decimal(4,5)", "no more behind the point"),
        ("int int", "character 5: something is left over"),
        ("struct<a int, a int>", "stands there twice"),
        ("array<struct<lane int, Lane int>>", "stands there twice"),
        ("struct<>", "expected a name"),
        ("", "character 1: expected a type"),
        ("int;", "unexpected character"),
        ("struct<a: int not void>", "expected NULL"),
    ],
)
def test_what_is_no_type_is_refused_with_its_place(text: str, told: str) -> None:
    with pytest.raises(ValueError, match="character") as caught:
        parse_type(text)
    assert told in str(caught.value)
