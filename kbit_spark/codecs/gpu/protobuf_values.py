"""Code that reads one Protobuf value into its column, be it a field, an item of a list or a part of a map's entry."""

from __future__ import annotations

from kbit_spark.codecs.gpu.constants import Constants
from kbit_spark.codecs.gpu.layout import Node, place, span, store, tensor_fits, tensor_item_type, written
from kbit_spark.codecs.gpu.protobuf_tables import FIXED_WIDTHS, WIRE_TYPES, enum_numbers
from kbit_spark.codecs.gpu.text import indent
from kbit_spark.codecs.plan import Plan

_UNSIGNED = ("uint64", "fixed64")


class Values:
    """Writes the code of values; names of symbols and defaults become constants of the program."""

    def __init__(self, constants: Constants) -> None:
        self._constants = constants

    def read(self, node: Node, field: Plan) -> list[str]:
        """Read a scalar behind its tag, or in a packed run."""
        if field["kind"] == "string":
            return ["i64 length = read_text(in);", *span(node, "in.at - length", "length")]
        if field["kind"] == "bytes":
            return ["i64 length = read_bytes(in);", *span(node, "in.at - length", "length")]
        if field["kind"] == "enum":
            return self._enum(node, field)
        return store(node, _number(field))

    def key(self, node: Node, field: Plan) -> list[str]:
        """Read the key of a map's entry and keep it in the entry's state."""
        if field["kind"] == "string":
            return [*self.read(node, field), "state.key = in.at - length; state.key_length = length;"]
        value = "Wide{(u64)state.key, 0}" if field["read"] == "decimal" else "state.key"
        return [f"state.key = {_integer(field)};", *store(node, value)]

    def tensor(self, node: Node) -> list[str]:
        """Read the bytes of a tensor."""
        return [
            "const u8* start = in.at;",
            "i64 length = read_bytes(in);",
            f"if (!in.fault && length != {node.stride}) fail(in, BAD_LENGTH, start);",
            *span(node, "in.at - length", "in.fault ? 0 : length"),
        ]

    def default(self, node: Node, field: Plan) -> list[str]:
        """Store what an absent field means, which the plan has as the bytes that could stand for it."""
        data = bytes.fromhex(field["default"])
        if not any(data) and field["kind"] != "enum":
            if node.kind == "bytes":
                return written(node, "0")
            return store(node, "Wide{0, 0}" if node.c_type == "Wide" else "0")
        name = self._constants.of(data)
        return [
            f"Cursor payload = in; in = cursor_over({name}, {name} + {len(data)});",
            *self.read(node, field),
            "i32 fault = in.fault; in = payload;",
            "if (fault) unsure(in);",
        ]

    def _enum(self, node: Node, field: Plan) -> list[str]:
        numbers = enum_numbers(field)
        arguments = f"{self._constants.numbers([*numbers, 0])}, {len(numbers)}, {str(field['closed']).lower()}"
        symbol = f"Symbol symbol = read_symbol(in, {arguments});"
        if field["read"] == "int":
            return [symbol, *store(node, "symbol.number")]
        texts = [field["symbols"][str(number)].encode() for number in numbers]
        ends = [sum(len(text) for text in texts[: index + 1]) for index in range(len(texts))]
        text, places = self._constants.of(b"".join(texts)), self._constants.numbers([0, *ends])
        return [
            symbol,
            "if (symbol.index >= 0) {",
            f"  i64 length = {places}[symbol.index + 1] - {places}[symbol.index];",
            *indent(span(node, f"{text} + {places}[symbol.index]", "length")),
            "} else {",
            f"  i64 length = number_text(symbol.number, LEAD ? {place(node)} : (u8*)0);",
            *indent(written(node, "length")),
            "}",
        ]


def window_into_list(node: Node, field: Plan) -> list[str]:
    """Return the code by which a warp reads some items of a packed run into the list `node`."""
    item = node.item
    if item is None or item.c_type == "" or field["kind"] in ("enum", "string", "bytes"):
        return []
    at = f"row.next[{node.child}] + j"
    puts = [f"(({item.c_type}*)row.buffers[{item.data}])[{at}] = ({item.c_type})({_of_raw(field)});"]
    if item.valid is not None:
        puts.append(f"row.buffers[{item.valid}][{at}] = 1;")
    return _window(field, "32", [f"return {_good(field)};"], puts, f"row.next[{node.child}] += taken")


def window_into_tensor(node: Node, field: Plan, count: int) -> list[str]:
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


def item_of_tensor(node: Node, field: Plan, count: int) -> list[str]:
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


def is_verbatim(field: Plan) -> bool:
    """Tell whether items lie on the wire as they lie in the tensor."""
    same = {"float": "float32", "double": "float64", "sfixed32": "int32", "sfixed64": "int64"}
    return same.get(field["kind"]) == field["tensor"]["dtype"]


def _number(field: Plan) -> str:
    if field["kind"] == "float":
        return "float_of((u32)read_bits(in, 4))"
    if field["kind"] == "double":
        return "double_of(read_bits(in, 8))"
    return f"Wide{{(u64){_integer(field)}, 0}}" if field["read"] == "decimal" else _integer(field)


def _integer(field: Plan) -> str:
    signed = field["kind"] in _UNSIGNED and field["read"] == "long"
    reader, kind = "read_as_signed" if signed else "read_number", field["kind"].upper()
    return f"{reader}(in, {kind})" if field["repeated"] else f"call_{reader}<{kind}>(in)"


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
    signed = field["kind"] in _UNSIGNED and field["read"] == "long"
    return f"in_range({field['kind'].upper()}, raw)" + (" && (i64)raw >= 0" if signed else "")


def _whole_fits(field: Plan) -> str:
    return f"{'value >= 0 && ' if field['kind'] in _UNSIGNED else ''}{tensor_fits(field['tensor'])}"


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
