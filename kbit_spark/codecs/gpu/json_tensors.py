"""Code that reads a tensor from JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kbit_spark.codecs.gpu.json_numbers import integer
from kbit_spark.codecs.gpu.layout import Node
from kbit_spark.codecs.gpu.tensors import tensor_fits, tensor_item_type, tensor_limits
from kbit_spark.codecs.gpu.text import indent
from kbit_spark.codecs.gpu.writes import place, written
from kbit_spark.codecs.plan import Plan


def tensor_lines(node: Node, tensor: Plan, *, mongo: bool) -> list[str]:
    """Read a tensor: base64, a flat list, or lists nested as its shape says."""
    shape, item = tensor["shape"], tensor_item_type(tensor)
    floating = tensor["dtype"].startswith("float")
    if floating:
        kind = "mongo_double" if mongo and item == "double" else item
        read, warp = f"read_{kind}(in)", []
    else:
        low, high = tensor_limits(tensor)
        read = integer(low, high, mongo=mongo)
        warp = [
            "if (WARP) {",
            f"  auto fits = [](i64 value) {{ return {tensor_fits(tensor)}; }};",
            "  i64 taken = read_integers(in, end - 1 - index, fits,",
            f"      [&](int j, i64 v) {{ if (FILL) put_item<{item}>(tensor, index + j, ({item})v); }});",
            "  if (taken) { index += taken; go = true; continue; }",
            "}",
        ]
    return [
        f"u8* tensor = {place(node)};",
        *_flat(item, read, warp),
        "if (peek(in) == '\"') {",
        *indent(_tensor_text(node)),
        "} else {",
        *indent(_nested(shape)),
        *indent(written(node, str(node.stride))),
        "}",
    ]


def _flat(item: str, read: str, warp: Sequence[str]) -> list[str]:
    """Read a list of numbers, one by one or, where a warp has the row, many at once."""
    one = [
        *warp,
        f"{item} value = ({item}){read};",
        f"if (FILL && LEAD && !in.fault) put_item<{item}>(tensor, index, value);",
        "index++;",
    ]
    return _walk("flat", "i64 index, i64 count", "count", one)


def _walk(name: str, arguments: str, count: str, one: Sequence[str]) -> list[str]:
    """Return the function that reads a list which has exactly `count` items of the tensor; `one` moves `index` on."""
    return [
        f"auto {name} = [&]({arguments}) {{",
        f"  i64 end = index + {count};",
        "  if (peek(in) != '[') { unsure(in); return; }",
        "  bool go = enter(in, ']');",
        "  while (go && !in.fault) {",
        "    if (index == end) { unsure(in); return; }",
        *indent(indent(one)),
        "    go = more(in, ']');",
        "  }",
        "  if (index != end) unsure(in);",
        "};",
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
        one = [f"lists_{axis + 1}(index);", f"index += {step};"]
        lists += _walk(f"lists_{axis}", "i64 index", str(shape[axis] * step), one)
    return [
        *lists,
        "Cursor inside = in;",
        "if (peek(inside) == '[') inside.at++;",
        f"if (peek(inside) == '[') lists_0(0); else flat(0, {total});",
    ]
