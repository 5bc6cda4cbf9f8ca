"""Kernels for JSON and MongoDB Extended JSON: the fields themselves are the plan, as for the CPU decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbit_spark.codecs.gpu.constants import Constants
from kbit_spark.codecs.gpu.json_numbers import POWERS, integer, powers_of_ten
from kbit_spark.codecs.gpu.json_tensors import tensor_lines
from kbit_spark.codecs.gpu.layout import Layout, Node, NotOnGpu
from kbit_spark.codecs.gpu.program import Program, assemble
from kbit_spark.codecs.gpu.tensors import WARP_ITEMS, tensor_items
from kbit_spark.codecs.gpu.text import indent
from kbit_spark.codecs.gpu.writes import function, nothing, open_list, place, present, span, store, written
from kbit_spark.codecs.plan import Plan

_INTEGERS = {"byte": 8, "short": 16, "int": 32, "long": 64}
_SKIPPED_LEVELS = 3
PARTS = ("json",)


def program(plan: Plan) -> Program:
    """Return the kernel for JSON objects or, by the plan's format, MongoDB documents.

    Raises:
        NotOnGpu: a column that has no kernel.
    """
    return assemble(
        plan, PARTS, lambda layout: body(plan, layout, "decode_row"), head=head(plan), warp=wants_warp(plan)
    )


def head(plan: Plan) -> list[str]:
    """Return the definitions that the parts need."""
    mongo = int(plan["format"] == "mongo")
    return [f"enum {{ MONGO = {mongo}, POWERS = {POWERS} }};", powers_of_ten()]


def wants_warp(plan: Plan) -> bool:
    """Tell whether rows hold long lists of integers, which a warp reads."""
    return any(_is_long(field) for field in plan["fields"])


def body(plan: Plan, layout: Layout, name: str) -> str:
    """Return the function `name` that reads one object into the columns of `layout`."""
    return _Kernel(name, mongo=plan["format"] == "mongo").body(plan["fields"], layout)


def _is_long(field: Plan) -> bool:
    if "tensor" in field:
        return not field["tensor"]["dtype"].startswith("float") and tensor_items(field["tensor"]) >= WARP_ITEMS
    tree = field["type"]
    return isinstance(tree, dict) and tree["type"] == "array" and tree["items"] in ("int", "long")


class _Kernel:
    """Writes the code of one object."""

    def __init__(self, name: str, *, mongo: bool) -> None:
        self._name = name
        self._mongo = mongo
        self._constants = Constants(name)

    def body(self, fields: Sequence[Plan], layout: Layout) -> str:
        """Return the function that reads one object."""
        lines = [
            "if (peek(in) != '{') { unsure(in); return; }",
            *self._object(fields, layout.columns),
            "if (peek(in) >= 0) unsure(in);",
        ]
        code = function(self._name, lines)
        return f"{self._constants.declarations()}\n{code}"

    def _object(self, fields: Sequence[Plan], columns: Sequence[Node]) -> list[str]:
        """Read an object's members into columns, in any order; the cursor is on its brace."""
        names = [(name.encode(), index) for index, field in enumerate(fields) for name in _names(field)]
        ends = [sum(len(name) for name, _ in names[: count + 1]) for count in range(len(names))]
        text = self._constants.of(b"".join(name for name, _ in names))
        places = self._constants.numbers([0, *ends])
        targets = self._constants.numbers([index for _, index in names] or [0])
        words = max(1, (len(fields) + 31) // 32)
        cases: list[str] = []
        for index, (field, node) in enumerate(zip(fields, columns, strict=True)):
            null = ["unsure(in);"] if field["required"] else nothing(node)
            cases += [f"case {index}: if (null) {{", *indent(null), "} else {", *indent(self._member(node, field))]
            cases += ["} break;"]
        absent: list[str] = []
        for index, (field, node) in enumerate(zip(fields, columns, strict=True)):
            missing = ["unsure(in);"] if field["required"] else nothing(node)
            absent += [f"if (!(seen[{index // 32}] >> {index % 32} & 1)) {{", *indent(missing), "}"]
        return [
            "{",
            f"  u32 seen[{words}] = {{}}; i32 expected = 0; Keys others; others.count = 0;",
            "  for (bool go = enter(in, '}'); go && !in.fault; go = more(in, '}')) {",
            "    Text name = read_name(in);",
            *indent(indent(self._no_wrapper())),
            "    expect(in, ':');",
            "    if (in.fault) break;",
            f"    i32 place = find_name(name, {text}, {places}, {len(names)}, expected);",
            "    if (place < 0) {",
            "      add_key(in, others, name.start, name.length);",
            f"      skip_value<{_SKIPPED_LEVELS}>(in);",
            "      continue;",
            "    }",
            f"    expected = place + 1 < {len(names)} ? place + 1 : 0;",
            f"    i32 field = {targets}[place];",
            "    if (seen[field / 32] >> (field % 32) & 1) { unsure(in); break; }",
            "    seen[field / 32] |= (u32)1 << (field % 32);",
            "    bool null = take_null(in);",
            "    switch (field) {",
            *indent(indent(indent(cases))),
            "    }",
            "  }",
            "  if (!in.fault) {",
            *indent(indent(absent)),
            "  }",
            "}",
        ]

    def _member(self, node: Node, field: Plan) -> list[str]:
        if "tensor" in field:
            return tensor_lines(node, field["tensor"], mongo=self._mongo)
        return self._value(node, field["type"])

    def _value(self, node: Node, tree: Any) -> list[str]:
        kind = tree if isinstance(tree, str) else tree["type"]
        if kind in _INTEGERS:
            return store(node, integer(*_limits(_INTEGERS[kind]), mongo=self._mongo))
        match kind:
            case "boolean":
                return store(node, "read_boolean(in)")
            case "double":
                return store(node, "read_mongo_double(in)" if self._mongo else "read_double(in)")
            case "float":
                return store(node, "read_float(in)")
            case "date":
                return store(node, "read_date(in)")
            case "timestamp":
                return store(node, "read_mongo_instant(in)" if self._mongo else "read_instant(in)")
            case "decimal":
                wide = f"read_decimal(in, {tree['precision']}, {tree['scale']})"
                return store(node, wide if node.c_type == "Wide" else f"{wide}.low")
            case "string":
                return _string(node)
            case "binary":
                return _binary(node)
            case "array":
                return self._list(node, tree["items"])
            case "map":
                return self._map(node, tree["values"])
            case "struct":
                return [
                    "if (peek(in) != '{') unsure(in);",
                    *present(node),
                    *self._object(tree["fields"], node.children),
                ]
        msg = f"no kernel reads {kind} from JSON"
        raise NotOnGpu(msg)

    def _list(self, node: Node, items: Any) -> list[str]:
        assert node.item is not None
        warp: list[str] = []
        if items in ("int", "long"):
            item, at = node.item, f"row.next[{node.child}] + j"
            fits = "(i32)v == v" if items == "int" else "true"
            target = f"(({item.c_type}*)row.buffers[{item.data}])[{at}] = ({item.c_type})v;"
            target += f" row.buffers[{item.valid}][{at}] = 1;"
            warp = [
                "if (WARP) {",
                "  i64 taken;",
                f"  while ((taken = read_integers(in, in.end - in.at, [](i64 v) {{ return {fits}; }},",
                f"      [&](int j, i64 v) {{ if (FILL) {{ {target} }} }}))) row.next[{node.child}] += taken;",
                "}",
            ]
        return [
            "if (peek(in) != '[') unsure(in);",
            *open_list(node),
            "for (bool go = enter(in, ']'); go && !in.fault; go = more(in, ']')) {",
            *indent(warp),
            "  if (take_null(in)) {",
            *indent(indent(nothing(node.item))),
            "  } else {",
            *indent(indent(self._value(node.item, items))),
            "  }",
            f"  row.next[{node.child}]++;",
            "}",
        ]

    def _map(self, node: Node, values: Any) -> list[str]:
        assert node.item is not None
        key, value = node.item.children
        return [
            "if (peek(in) != '{') unsure(in);",
            *open_list(node),
            "Keys keys; keys.count = 0;",
            "for (bool go = enter(in, '}'); go && !in.fault; go = more(in, '}')) {",
            "  Text name = read_name(in);",
            *indent(self._no_wrapper()),
            "  add_key(in, keys, name.start, name.length);",
            "  expect(in, ':');",
            *indent(span(key, "name.start", "name.length")),
            "  if (take_null(in)) {",
            *indent(indent(nothing(value))),
            "  } else {",
            *indent(indent(self._value(value, values))),
            "  }",
            f"  row.next[{node.child}]++;",
            "}",
        ]

    def _no_wrapper(self) -> list[str]:
        """Return the code that leaves an object which may be a wrapped value to the CPU."""
        return ["if (name.length && *name.start == '$') unsure(in);"] if self._mongo else []


def _string(node: Node) -> list[str]:
    return [
        "Text text = read_string(in);",
        "if (text.escaped && !in.fault) {",
        f"  if (FILL && LEAD) write_text(text, {place(node)});",
        *indent(written(node, "text.length")),
        "} else {",
        *indent(span(node, "text.start", "text.length")),
        "}",
    ]


def _binary(node: Node) -> list[str]:
    return [f"i64 bytes = read_base64(in, LEAD ? {place(node)} : (u8*)0);", *written(node, "bytes")]


def _names(field: Plan) -> Sequence[str]:
    return field.get("sources") or [field["name"]]


def _limits(bits: int) -> tuple[int, int]:
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
