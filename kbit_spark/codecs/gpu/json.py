"""Kernels for JSON and MongoDB Extended JSON: the fields themselves are the plan, as for the CPU decoder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kbit_spark.codecs.gpu.constants import Constants
from kbit_spark.codecs.gpu.layout import (
    WARP_ITEMS,
    Layout,
    Node,
    NotOnGpu,
    function,
    nothing,
    open_list,
    place,
    present,
    span,
    store,
    tensor_fits,
    tensor_item_type,
    tensor_items,
    tensor_limits,
    written,
)
from kbit_spark.codecs.gpu.program import Program, assemble
from kbit_spark.codecs.gpu.text import indent
from kbit_spark.codecs.plan import Plan

_INTEGERS = {"byte": 8, "short": 16, "int": 32, "long": 64}
_SKIPPED_LEVELS = 3
_POWERS = 300
"""Powers of ten up to this one, and its negative, are in the kernel's table."""
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
    return [f"enum {{ MONGO = {mongo}, POWERS = {_POWERS} }};", _powers()]


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
        return self._tensor(node, field["tensor"]) if "tensor" in field else self._value(node, field["type"])

    def _value(self, node: Node, tree: Any) -> list[str]:
        kind = tree if isinstance(tree, str) else tree["type"]
        if kind in _INTEGERS:
            return store(node, self._integer(*_limits(_INTEGERS[kind])))
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

    def _integer(self, low: int, high: int) -> str:
        least = "-0x7fffffffffffffffLL - 1" if low == -(2**63) else f"{low}LL"
        return f"read_{'mongo_' if self._mongo else ''}integer(in, {least}, {high}LL)"

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

    def _tensor(self, node: Node, tensor: Plan) -> list[str]:
        shape, item = tensor["shape"], tensor_item_type(tensor)
        floating = tensor["dtype"].startswith("float")
        if floating:
            mongo = self._mongo and item == "double"
            read, warp = f"read_{'mongo_' if mongo else ''}{item}(in)", []
        else:
            low, high = tensor_limits(tensor)
            read = self._integer(low, high)
            warp = [
                "if (WARP) {",
                f"  auto fits = [](i64 value) {{ return {tensor_fits(tensor)}; }};",
                "  i64 taken = read_integers(in, end - 1 - index, fits,",
                f"      [&](int j, i64 v) {{ if (FILL) put_item<{item}>(tensor, index + j, ({item})v); }});",
                "  if (taken) { index += taken; go = true; continue; }",
                "}",
            ]
        flat = [
            "auto flat = [&](i64 index, i64 count) {",
            "  i64 end = index + count;",
            "  if (peek(in) != '[') { unsure(in); return; }",
            "  bool go = enter(in, ']');",
            "  while (go && !in.fault) {",
            "    if (index == end) { unsure(in); return; }",
            *indent(indent(warp)),
            f"    {item} value = ({item}){read};",
            f"    if (FILL && LEAD && !in.fault) put_item<{item}>(tensor, index, value);",
            "    index++;",
            "    go = more(in, ']');",
            "  }",
            "  if (index != end) unsure(in);",
            "};",
        ]
        return [
            f"u8* tensor = {place(node)};",
            *flat,
            "if (peek(in) == '\"') {",
            *indent(_tensor_text(node)),
            "} else {",
            *indent(_nested(shape)),
            *indent(written(node, str(node.stride))),
            "}",
        ]


def _tensor_text(node: Node) -> list[str]:
    """Read a tensor as base64, which must be of its size before it is written."""
    return [
        "Cursor before = in;",
        "i64 bytes = read_base64(in, (u8*)0);",
        f"if (bytes != {node.stride}) unsure(in);",
        "if (FILL && LEAD && !in.fault) read_base64(before, tensor);",
        *written(node, str(node.stride)),
    ]


def _nested(shape: Sequence[int]) -> list[str]:
    """Read a flat list, or lists nested as the shape says."""
    total = math.prod(shape)
    if len(shape) == 1:
        return [f"flat(0, {total});"]
    lists = [
        f"auto lists_{len(shape) - 1} = [&](i64 index) {{ flat(index, {shape[-1]}); }};",
    ]
    for axis in range(len(shape) - 2, -1, -1):
        step = math.prod(shape[axis + 1 :])
        lists += [
            f"auto lists_{axis} = [&](i64 index) {{",
            f"  i64 end = index + {shape[axis] * step};",
            "  if (peek(in) != '[') { unsure(in); return; }",
            "  bool go = enter(in, ']');",
            "  while (go && !in.fault) {",
            "    if (index == end) { unsure(in); return; }",
            f"    lists_{axis + 1}(index);",
            f"    index += {step};",
            "    go = more(in, ']');",
            "  }",
            "  if (index != end) unsure(in);",
            "};",
        ]
    return [
        *lists,
        "Cursor inside = in;",
        "if (peek(inside) == '[') inside.at++;",
        f"if (peek(inside) == '[') lists_0(0); else flat(0, {total});",
    ]


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


def _powers() -> str:
    """Return the first 128 bits of the powers of ten, each as two words, the high one first."""
    words: list[str] = []
    for exponent in range(-_POWERS, _POWERS + 1):
        if exponent >= 0:
            value = 5**exponent
            shift = value.bit_length() - 128
            bits = value >> shift if shift > 0 else value << -shift
        else:  # rounded up: the product must not be too small
            divisor = 5**-exponent
            bits = (1 << (divisor.bit_length() + 127)) // divisor + 1
            bits >>= bits.bit_length() - 128
        words += [f"0x{bits >> 64:x}ULL", f"0x{bits % 2**64:x}ULL"]
    return f"DEVICE const u64 powers_of_ten[] = {{{', '.join(words)}}};"
