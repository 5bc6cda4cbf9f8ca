"""Kernels for Avro: the reading plan of kbit.decode.avro as straight code."""

from __future__ import annotations

from collections.abc import Sequence

from kbit_spark.codecs.gpu.avro_skip import NUMBERS, Skipper, blocks, limit, union
from kbit_spark.codecs.gpu.constants import Constants
from kbit_spark.codecs.gpu.layout import Layout, Node, NotOnGpu
from kbit_spark.codecs.gpu.program import Program, assemble, fault_name
from kbit_spark.codecs.gpu.tensors import WARP_ITEMS, tensor_fits, tensor_item_bytes, tensor_item_type, tensor_items
from kbit_spark.codecs.gpu.text import block, indent
from kbit_spark.codecs.gpu.writes import function, nothing, open_list, place, present, span, store, written
from kbit_spark.codecs.plan import Plan

PARTS = ("varints", "avro")
_BYTES = {
    "bytes": "read_bytes(in)",
    "string": "read_text(in)",
    "string_as_bytes": "read_text(in)",
    "bytes_as_string": "read_text(in)",
}


def program(plan: Plan) -> Program:
    """Return the kernel for bare Avro records.

    Raises:
        NotOnGpu: a column or value that has no kernel.
    """
    return assemble(plan, PARTS, lambda layout: body(plan, layout, "decode_row"), warp=wants_warp(plan))


def wants_warp(plan: Plan) -> bool:
    """Tell whether rows hold long arrays of varints, which a warp reads."""
    readers = [step["reader"] for step in plan["row"]["steps"] if "reader" in step]
    branches = [branch for reader in readers for branch in reader.get("branches", [reader])]
    return any(
        (
            reader["read"] == "tensor_list"
            and reader["items"] in ("int", "long")
            and tensor_items(reader["tensor"]) >= WARP_ITEMS
        )
        or (reader["read"] == "list" and reader["items"]["read"] in ("int", "long"))
        for reader in branches
    )


def body(plan: Plan, layout: Layout, name: str) -> str:
    """Return the function `name` that reads one record into the columns of `layout`."""
    kernel = _Kernel(plan["records"], name)
    lines = kernel.record(plan["row"], layout.columns)
    lines += [
        "if (!in.fault && in.at < in.end) fail(in, TRAILING_BYTES, in.at);",
        "if (in.fault == TRUNCATED && in.start == in.end) in.fault = EMPTY_PAYLOAD;",
    ]
    return f"{kernel.constants.declarations()}\n{function(name, lines)}"


class _Kernel:
    """Writes the code of one plan."""

    def __init__(self, records: Plan, name: str) -> None:
        self._skipper = Skipper(records)
        self.constants = Constants(name)

    def record(self, plan: Plan, columns: Sequence[Node]) -> list[str]:
        """Read the fields of a record, in the writer's order, into the nodes of `columns`."""
        lines: list[str] = []
        missing = set(range(len(columns)))
        for step in plan["steps"]:
            if "skip" in step:
                lines += self._skipper.skip(step["skip"])
            else:
                missing.discard(step["target"])
                lines += block(self.value(columns[step["target"]], step["reader"]))
        for default in plan["defaults"]:
            missing.discard(default["target"])
            lines += self._default(columns[default["target"]], default)
        return lines + [line for index in sorted(missing) for line in nothing(columns[index])]

    def _default(self, node: Node, default: Plan) -> list[str]:
        """Read a default as if it stood in the payload; one that its column cannot hold is a fault of every record."""
        data = bytes.fromhex(default["bytes"])
        name = self.constants.of(data)
        return [
            "{",
            f"  Cursor payload = in; in = cursor_over({name}, {name} + {len(data)});",
            *indent(self.value(node, default["reader"])),
            "  i32 fault = in.fault; in = payload;",
            "  if (fault) unsure(in);",
            "}",
        ]

    def value(self, node: Node, plan: Plan) -> list[str]:
        """Read a value into a node."""
        kind = plan["read"]
        if kind in NUMBERS:
            return store(node, NUMBERS[kind])
        if kind in _BYTES:
            return [f"i64 length = {_BYTES[kind]};", *span(node, "in.at - length", "length")]
        match kind:
            case "null":
                return nothing(node)
            case "timestamp":
                return store(node, f"read_timestamp(in, {plan['per_second']})")
            case "decimal":
                return self._decimal(node, plan)
            case "fixed":
                return [f"i64 length = skip(in, {plan['size']});", *span(node, "in.at - length", "length")]
            case "uuid":
                return [f"read_uuid(in, {plan['size']}, LEAD ? {place(node)} : (u8*)0);", *written(node, "36")]
            case "enum":
                return self._enum(node, plan["symbols"])
            case "list":
                return self._list(node, plan["items"])
            case "map":
                return self._map(node, plan["values"])
            case "struct":
                return [*present(node), *self.record(plan, node.children)]
            case "member":
                return self._member(node, plan)
            case "union":
                return union([self.value(node, branch) for branch in plan["branches"]])
            case "refused":
                return [f"fail(in, {fault_name(plan['code'])}, start);"]
            case "tensor_bytes":
                return self._tensor_bytes(node, plan)
            case "tensor_list":
                return self._tensor_list(node, plan)
        msg = f"no kernel reads Avro's {kind}"
        raise NotOnGpu(msg)

    def _decimal(self, node: Node, plan: Plan) -> list[str]:
        value = "value" if node.c_type == "Wide" else "value.low"
        return [f"Wide value = read_decimal(in, {plan['size']}, {limit(plan)});", *store(node, value)]

    def _enum(self, node: Node, symbols: Sequence[str | None]) -> list[str]:
        texts = [(symbol or "").encode() for symbol in symbols]
        ends = [sum(len(text) for text in texts[: index + 1]) for index in range(len(texts))]
        text, places = self.constants.of(b"".join(texts)), self.constants.numbers([0, *ends])
        known = self.constants.of(bytes(symbol is not None for symbol in symbols))
        return [
            "const u8* start = in.at;",
            f"i32 symbol = read_index(in, {len(symbols)}, BAD_ENUM);",
            f"if (!in.fault && !{known}[symbol]) fail(in, BAD_ENUM, start);",
            f"i64 length = {places}[symbol + 1] - {places}[symbol];",
            *span(node, f"{text} + {places}[symbol]", "length"),
        ]

    def _list(self, node: Node, items: Plan) -> list[str]:
        assert node.item is not None
        warp = self._warp_items(node, node.item) if items["read"] in ("int", "long") else []
        one = [
            "const u8* first = in.at;",
            *self.value(node.item, items),
            "if (in.at == first) count_empty(in, blocks);",
            f"row.next[{node.child}]++; left--;",
        ]
        return [*open_list(node), *blocks([*warp, *block(one)])]

    def _warp_items(self, node: Node, item: Node) -> list[str]:
        if item.c_type not in ("i32", "i64"):
            return []
        at = f"row.next[{node.child}] + j"
        valid = "" if item.valid is None else f"row.buffers[{item.valid}][{at}] = 1;"
        fits = "(i32)v == v" if item.c_type == "i32" else "true"
        target = f"(({item.c_type}*)row.buffers[{item.data}])[{at}] = ({item.c_type})v;"
        return [
            "if (WARP) {",
            f"  i64 taken = read_window(in, left, [](u64 raw) {{ i64 v = unzigzag(raw); return {fits}; }},",
            f"      [&](int j, u64 raw) {{ i64 v = unzigzag(raw); if (FILL) {{ {target} {valid} }} }});",
            f"  if (taken) {{ row.next[{node.child}] += taken; left -= taken; continue; }}",
            "}",
        ]

    def _map(self, node: Node, values: Plan) -> list[str]:
        assert node.item is not None
        key, value = node.item.children
        entry = [
            "{ i64 length = read_text(in); add_key(in, keys, in.at - length, length);",
            *indent(span(key, "in.at - length", "length")),
            "}",
            *block(self.value(value, values)),
            f"row.next[{node.child}]++; left--;",
        ]
        return [*open_list(node), "Keys keys;", *blocks(entry)]

    def _member(self, node: Node, plan: Plan) -> list[str]:
        lines = present(node)
        for index, child in enumerate(node.children):
            lines += block(self.value(child, plan["reader"])) if index == plan["member"] else nothing(child)
        return lines

    def _tensor_bytes(self, node: Node, plan: Plan) -> list[str]:
        length = "read_bytes(in)" if plan.get("size", -1) < 0 else f"skip(in, {plan['size']})"
        return [
            "const u8* start = in.at;",
            f"i64 length = {length};",
            f"if (!in.fault && length != {node.stride}) fail(in, BAD_LENGTH, start);",
            *span(node, "in.at - length", "in.fault ? 0 : length"),
        ]

    def _tensor_list(self, node: Node, plan: Plan) -> list[str]:
        tensor, items, count = plan["tensor"], plan["items"], tensor_items(plan["tensor"])
        item = tensor_item_type(tensor)
        put = f"if (FILL) put_item<{item}>(tensor, index, ({item})value);"
        one = [f"if (LEAD) {{ {put} }}", "index++; left--;"]
        if items in ("int", "long"):
            fits = tensor_fits(tensor)
            value, cast = "i64 value = unzigzag(raw);", f"({item})value"
            warp = [
                "if (WARP) {",
                f"  i64 taken = read_window(in, left, [](u64 raw) {{ {value} return {_whole(items)} && {fits}; }},",
                f"      [&](int j, u64 raw) {{ {value} if (FILL) put_item<{item}>(tensor, index + j, {cast}); }});",
                "  if (taken) { index += taken; left -= taken; continue; }",
                "}",
            ]
            read = [f"i64 value = read_{items}(in);", f"if (!in.fault && !({fits})) fail(in, INT_OVERFLOW, first);"]
        else:
            warp = []
            wide = items == "double" and tensor_item_bytes(tensor) == 4
            read = [f"{items} value = {NUMBERS[items]};"]
            if wide:  # finite, but not as a float
                finite = "value - value == 0 && (float)value - (float)value != 0"
                read.append(f"if (!in.fault && {finite}) fail(in, INT_OVERFLOW, first);")
        too_many = f"if (left > {count} - index) {{ fail(in, BAD_LENGTH, blocks.count_at); break; }}"
        return [
            f"u8* tensor = {place(node)}; i64 index = 0;",
            *blocks([*warp, *block(["const u8* first = in.at;", *read, *one])], [too_many]),
            f"if (!in.fault && index < {count}) fail(in, BAD_LENGTH, blocks.count_at);",
            *written(node, str(node.stride)),
        ]


def _whole(items: str) -> str:
    return "(i32)value == value" if items == "int" else "true"
