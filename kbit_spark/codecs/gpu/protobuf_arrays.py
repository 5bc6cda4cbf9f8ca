"""Code that reads repeated numbers: into lists, whose items stand one by one or in packed runs, and into tensors."""

from __future__ import annotations

from collections.abc import Sequence

from kbit_spark.codecs.gpu.layout import Node
from kbit_spark.codecs.gpu.protobuf_tables import FIXED_WIDTHS, UNSIGNED, WIRE_TYPES
from kbit_spark.codecs.gpu.tensors import tensor_fits, tensor_item_bytes, tensor_item_type, tensor_items
from kbit_spark.codecs.gpu.text import block, indent
from kbit_spark.codecs.gpu.writes import place, span, written
from kbit_spark.codecs.plan import Plan


def packed_list(node: Node, field: Plan, one: Sequence[str]) -> list[str]:
    """Return the code that reads a packed run into the list `node`; `one` reads an item."""
    return [_bytes_of_run(field), *_run([*_window_into_list(node, field), *block(one)])]


def tensor(node: Node, field: Plan, items: str) -> tuple[list[str], list[str]]:
    """Return the code that reads an item and the one that reads a run, with `items` as the state of both."""
    count = tensor_items(field["tensor"])
    begin = [f"Items& items = {items};", "items.run = in.at;"]
    one = _item_of_tensor(node, field, count)
    run = [_bytes_of_run(field)]
    if is_verbatim(field):
        many = f"bytes / {tensor_item_bytes(field['tensor'])} > {count} - items.count"
        taken = f"items.whole = in.at; items.count = {count};"
        run += [
            f"if ({many}) {{ fail(in, BAD_LENGTH, items.run); bytes = 0; }}",
            f"if (bytes == {node.stride}) {{ {taken} in.at += bytes; bytes = 0; }}",
        ]
    run += _run([*_window_into_tensor(node, field, count), *block(one)])
    return [*begin, *one], [*begin, *run]


def finish_tensor(node: Node, items: str) -> list[str]:
    """Return the code for a tensor that is complete: its bytes are copied from the payload, or written already."""
    stride = str(node.stride)
    return [
        f"if ({items}.whole) {{",
        *indent(span(node, f"{items}.whole", stride)),
        "} else {",
        *indent(written(node, stride)),
        "}",
    ]


def is_verbatim(field: Plan) -> bool:
    """Tell whether items lie on the wire as they lie in the tensor."""
    same = {"float": "float32", "double": "float64", "sfixed32": "int32", "sfixed64": "int64"}
    return bool(same.get(field["kind"]) == field["tensor"]["dtype"])


def _window_into_list(node: Node, field: Plan) -> list[str]:
    """Return the code by which a warp reads some items of a packed run into the list `node`."""
    item = node.item
    if item is None or item.c_type == "" or field["kind"] in ("enum", "string", "bytes"):
        return []
    at = f"row.next[{node.child}] + j"
    puts = [f"(({item.c_type}*)row.buffers[{item.data}])[{at}] = ({item.c_type})({_of_raw(field)});"]
    if item.valid is not None:
        puts.append(f"row.buffers[{item.valid}][{at}] = 1;")
    return _window(field, "32", [f"return {_good(field)};"], puts, f"row.next[{node.child}] += taken")


def _window_into_tensor(node: Node, field: Plan, count: int) -> list[str]:
    """Return the code by which a warp reads some items of a packed run into a tensor of `count` items."""
    item = tensor_item_type(field["tensor"])
    if field["kind"] in ("float", "double"):
        value = f"{field['kind']} value = {_of_raw(field)};"
        check = [value, f"return {_float_fits(field)} && !({_bits_may_change(field)});"]
    else:
        value = f"i64 value = {_of_raw(field)};"
        check = [value, f"return {_good(field)} && {_whole_fits(field)};"]
    put = [f"{value} put_item<{item}>({place(node)}, items.count + j, ({item})value);"]
    return _window(field, f"{count} - items.count", check, put, "items.count += taken")


def _item_of_tensor(node: Node, field: Plan, count: int) -> list[str]:
    """Return the code that reads one item of a tensor of `count` items."""
    item = tensor_item_type(field["tensor"])
    if field["kind"] in ("float", "double"):
        width = FIXED_WIDTHS[WIRE_TYPES[field["kind"]]]
        read = [
            f"u64 raw = read_bits(in, {width});",
            f"{field['kind']} value = {_of_raw(field)};",
            f"if ({_bits_may_change(field)}) unsure(in);",
        ]
        fits = _float_fits(field)
    else:
        read = [f"i64 value = read_number(in, {field['kind'].upper()});"]
        fits = _whole_fits(field)
    return [
        "const u8* first = in.at;",
        f"if (items.count == {count}) fail(in, BAD_LENGTH, first);",
        *read,
        f"if (!({fits})) fail(in, INT_OVERFLOW, first);",
        "if (!in.fault) {",
        f"  if (FILL && LEAD) put_item<{item}>({place(node)}, items.count, ({item})value);",
        "  items.count++;",
        "}",
    ]


def _of_raw(field: Plan) -> str:
    """Return the value of the bits `raw`."""
    if field["kind"] == "float":
        return "float_of((u32)raw)"
    if field["kind"] == "double":
        return "double_of(raw)"
    return "Wide{raw, 0}" if field["read"] == "decimal" else f"value_of({field['kind'].upper()}, raw)"


def _good(field: Plan) -> str:
    """Return the condition that the bits `raw` are a value of the field and, unless it is a tensor, of its column."""
    if field["kind"] in ("float", "double"):
        return "true"
    signed = field["kind"] in UNSIGNED and field["read"] == "long"
    return f"in_range({field['kind'].upper()}, raw)" + (" && (i64)raw >= 0" if signed else "")


def _whole_fits(field: Plan) -> str:
    return f"{'value >= 0 && ' if field['kind'] in UNSIGNED else ''}{tensor_fits(field['tensor'])}"


def _float_fits(field: Plan) -> str:
    narrow = field["kind"] == "double" and field["tensor"]["dtype"] == "float32"
    return "!(value - value == 0 && (float)value - (float)value != 0)" if narrow else "true"


def _bits_may_change(field: Plan) -> str:
    return "is_signaling(value, raw)" if is_verbatim(field) else "value != value"


def _window(field: Plan, left: str, check: list[str], puts: list[str], taken: str) -> list[str]:
    width = FIXED_WIDTHS.get(WIRE_TYPES[field["kind"]])
    reader = "read_window" if width is None else f"read_fixed_window<{width}>"
    return [
        "if (WARP) {",
        f"  i64 taken = {reader}(in, {left}, [](u64 raw) {{ {' '.join(check)} }},",
        f"      [&](int j, u64 raw) {{ if (FILL) {{ {' '.join(puts)} }} }});",
        f"  if (taken) {{ {taken}; continue; }}",
        "}",
    ]


def _bytes_of_run(field: Plan) -> str:
    return f"i64 bytes = read_run(in, {FIXED_WIDTHS.get(WIRE_TYPES[field['kind']], 1)});"


def _run(lines: Sequence[str]) -> list[str]:
    """Return the walk over the items of a packed run of `bytes` bytes."""
    return ["const u8* outer = enter(in, bytes);", "while (in.at < in.end) {", *indent(lines), "}", "leave(in, outer);"]
