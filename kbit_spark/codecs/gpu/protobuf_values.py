"""Code that reads one Protobuf value into its column, be it a field, an item of a list or a part of a map's entry."""

from __future__ import annotations

from kbit_spark.codecs.gpu.constants import Constants
from kbit_spark.codecs.gpu.layout import Node
from kbit_spark.codecs.gpu.protobuf_tables import UNSIGNED, enum_numbers
from kbit_spark.codecs.gpu.text import indent
from kbit_spark.codecs.gpu.writes import place, span, store, written
from kbit_spark.codecs.plan import Plan


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


def _number(field: Plan) -> str:
    if field["kind"] == "float":
        return "float_of((u32)read_bits(in, 4))"
    if field["kind"] == "double":
        return "double_of(read_bits(in, 8))"
    return f"Wide{{(u64){_integer(field)}, 0}}" if field["read"] == "decimal" else _integer(field)


def _integer(field: Plan) -> str:
    signed = field["kind"] in UNSIGNED and field["read"] == "long"
    reader, kind = "read_as_signed" if signed else "read_number", field["kind"].upper()
    return f"{reader}(in, {kind})" if field["repeated"] else f"call_{reader}<{kind}>(in)"
