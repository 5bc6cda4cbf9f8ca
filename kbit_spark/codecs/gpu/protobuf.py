"""Kernels for Protobuf: the messages of a plan as functions, one to read the fields and one to finish the row.

The fields of a message come in any order, so numbers and strings are stored when they are met and what is absent when
the message ends; lists begin where their row begins. What is rare goes to the CPU: a string that occurs twice, rivals
in a oneof that are both there, keys that repeat, groups that a column wants.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbit_spark.codecs.gpu import protobuf_arrays as arrays
from kbit_spark.codecs.gpu.constants import Constants
from kbit_spark.codecs.gpu.layout import Layout, Node, NotOnGpu
from kbit_spark.codecs.gpu.program import Program, assemble
from kbit_spark.codecs.gpu.protobuf_tables import LENGTH, WIRE_TYPES, Tables, is_packable
from kbit_spark.codecs.gpu.protobuf_values import Values
from kbit_spark.codecs.gpu.tensors import WARP_ITEMS, tensor_items
from kbit_spark.codecs.gpu.text import indent
from kbit_spark.codecs.gpu.writes import function, nothing, open_list, present
from kbit_spark.codecs.plan import Plan

PARTS = ("varints", "protobuf")
_ENTER = "const u8* outer = enter(in, read_length(in));"
_LEAVE = "leave(in, outer);"


def program(plan: Plan) -> Program:
    """Return the kernel for bare messages.

    Raises:
        NotOnGpu: a column or message that has no kernel.
    """
    return assemble(plan, PARTS, lambda layout: body(plan, layout, "decode_row"), warp=wants_warp(plan))


def wants_warp(plan: Plan) -> bool:
    """Tell whether rows hold long arrays of numbers, which a warp reads."""
    fields = plan["messages"][plan["root"]]["fields"]
    return any(
        not arrays.is_verbatim(field) and tensor_items(field["tensor"]) >= WARP_ITEMS
        if field["read"] == "tensor"
        else field["kind"] != "enum"
        for field in fields
        if field["wanted"] and is_packable(field)
    )


def body(plan: Plan, layout: Layout, name: str) -> str:
    """Return the function `name` that reads one message into the columns of `layout`."""
    kernel = _Kernel(plan, name)
    root = kernel.message(plan["root"], layout.columns)
    lines = [f"{root}_state state;", *_begin(layout.columns), *_whole(root)]
    parts = [kernel.constants.declarations(), kernel.tables.declarations(), *kernel.functions, function(name, lines)]
    return "\n".join(parts)


class _Kernel:
    """The code of one plan."""

    def __init__(self, plan: Plan, name: str) -> None:
        self.plans = plan["messages"]
        self.constants = Constants(name)
        self.tables = Tables(self.plans, name)
        self.values = Values(self.constants)
        self.functions: list[str] = []
        self._name = name

    def message(self, key: str, columns: Sequence[Node], own: Node | None = None) -> str:
        """Write the functions of a message, behind those of the messages in it, and return how their names begin.

        Args:
            key: of its plan.
            columns: where its row goes.
            own: the column that the row itself is, if it is one.
        """
        name = f"{self._name}_{self.tables.index[key]}"
        self.functions.append(_Message(self, key, columns, own).text(name))
        return name

    def item(self, key: str, columns: Sequence[Node], own: Node) -> str:
        """Do the same for a message that is an item; a third function reads all of it."""
        name = self.message(key, columns, own)
        self._add(f"{name}_item(Row& row)", [f"{name}_state state;", *_begin(columns), *_whole(name)])
        return name

    def entry(self, key: str, columns: Sequence[Node], own: Node) -> str:
        """Do the same for the entry of a map, whose third function takes the keys so far."""
        name = self.message(key, columns, own)
        text = columns[0].kind == "bytes"
        add = f"add_key(in, keys, state.key{', state.key_length' if text else ''});"
        lines = ["Cursor& in = row.in;", f"{name}_state state;", *_begin(columns), *_whole(name), add]
        self._add(f"{name}_entry(Row& row, {keys_type(columns[0])}& keys)", lines)
        return name

    def _add(self, signature: str, lines: Sequence[str]) -> None:
        self.functions.append(_function(signature, lines))


class _Message:
    """Writes the code of one message: `state`, which lasts while it is read, and two functions that share it."""

    def __init__(self, kernel: _Kernel, key: str, columns: Sequence[Node], own: Node | None) -> None:
        plan = kernel.plans[key]
        self._kernel = kernel
        self._index = kernel.tables.index[key]
        self._fields: list[Plan] = plan["fields"]
        self._columns = list(zip(plan["columns"], columns, strict=True))
        self._own = own
        self._nodes = {column["slot"]: node for column, node in self._columns if column["slot"] >= 0}
        if len(self._nodes) < sum(column["slot"] >= 0 for column, _ in self._columns):
            msg = f"two columns are read from one field of {plan['name']}"
            raise NotOnGpu(msg)
        marked = [slot for slot, field in enumerate(self._fields) if self._is_marked(slot, field)]
        self._bits = {slot: bit for bit, slot in enumerate(marked)}
        self._parts: dict[int, str] = {}
        self._members = [f"u64 seen[{len(marked) // 64 + 1}] = {{0}};"]

    def _is_marked(self, slot: int, field: Plan) -> bool:
        """Tell whether it matters if a field has occurred."""
        single = not field["repeated"] or field.get("read") == "tensor"
        return field["must_occur"] or (slot in self._nodes and single)

    def text(self, name: str) -> str:
        """Return struct and functions, whose names begin with `name`."""
        cases = [line for slot, field in enumerate(self._fields) for line in self._cases(slot, field)]
        read = [
            "Cursor& in = row.in;",
            "while (in.at < in.end) {",
            "  const u8* tag_at = in.at;",
            "  u32 tag = read_tag(in);",
            "  switch (tag) {",
            *indent(indent(cases)),
            f"    default: {self._pass_over()}",
            "  }",
            "}",
        ]
        finish = ["Cursor& in = row.in;", "if (in.fault) return;", *self._judge(), *self._finish()]
        return "\n".join(
            [
                f"struct {name}_state {{\n{chr(10).join(indent(self._members))}\n}};",
                _function(f"{name}_read(Row& row, {name}_state& state)", read),
                _function(f"{name}_finish(Row& row, {name}_state& state)", finish),
            ]
        )

    def _cases(self, slot: int, field: Plan) -> list[str]:
        """Return what happens behind the right tags of a field."""
        node = self._nodes.get(slot)
        tag, wire = field["number"] << 3, WIRE_TYPES[field["kind"]]
        if node is None or field["kind"] == "group":
            marks = [*self._judge_rivals(slot), *self._mark(slot)]
            return _case(tag | wire, [*marks, self._pass_over()]) if marks else []
        if not field["repeated"]:
            one = self._single(slot, field, node)
            return _case(tag | wire, [*self._judge_rivals(slot), *one, *self._mark(slot)])
        if field["kind"] in ("map", "message"):
            return _case(tag | wire, self._items(slot, field, node))
        if field["read"] == "tensor":
            self._members.append(f"Items items_{slot};")
            one, run = arrays.tensor(node, field, f"state.items_{slot}")
        else:
            assert node.item is not None
            one = [*self._kernel.values.read(node.item, field), f"row.next[{node.child}]++;"]
            run = arrays.packed_list(node, field, one)
        cases = _case(tag | wire, [*one, *self._mark(slot)])
        return cases + (_case(tag | LENGTH, [*run, *self._mark(slot)]) if is_packable(field) else [])

    def _single(self, slot: int, field: Plan, node: Node) -> list[str]:
        values = self._kernel.values
        if field["kind"] == "message":
            part = self._parts[slot] = self._kernel.message(field["message"], node.children, node)
            self._members.append(f"{part}_state part_{slot};")
            return [_ENTER, f"{part}_read<FILL>(row, state.part_{slot});", _LEAVE]
        once = [f"if ({self._has(slot)}) unsure(in);"] if node.kind == "bytes" else []
        if field["read"] == "tensor":
            return [*once, *values.tensor(node)]
        if self._is_key(slot):
            text = field["kind"] == "string"
            self._members.append("const u8* key = 0; i64 key_length = 0;" if text else "i64 key = 0;")
            return [*once, *values.key(node, field)]
        return [*once, *values.read(node, field)]

    def _is_key(self, slot: int) -> bool:
        """Tell whether a field is the key of a map, whose entries alone are structs within a map's type."""
        return slot == 0 and self._own is not None and self._own.tree["type"] == "map"

    def _items(self, slot: int, field: Plan, node: Node) -> list[str]:
        assert node.item is not None
        counted = f"row.next[{node.child}]++;"
        if field["kind"] == "message":
            name = self._kernel.item(field["message"], node.item.children, node.item)
            return [_ENTER, f"{name}_item<FILL>(row);", _LEAVE, counted]
        name = self._kernel.entry(field["message"], node.item.children, node.item)
        self._members.append(f"{keys_type(node.item.children[0])} keys_{slot};")
        return [_ENTER, f"{name}_entry<FILL>(row, state.keys_{slot});", _LEAVE, counted]

    def _judge(self) -> list[str]:
        """Return the checks of fields when the message has ended, in their order."""
        lines: list[str] = []
        for slot, field in enumerate(self._fields):
            if slot in self._parts:
                lines.append(f"if ({self._has(slot)}) {self._finish_part(slot)}")
            elif slot in self._nodes and field["repeated"] and field.get("read") == "tensor":
                wrong = f"state.items_{slot}.count != {tensor_items(field['tensor'])}"
                lines.append(f"if ({self._has(slot)} && {wrong}) fail(in, BAD_LENGTH, state.items_{slot}.run);")
            if field["must_occur"]:
                lines.append(f"if (!({self._has(slot)})) fail(in, MISSING_FIELD, in.at);")
        return lines

    def _finish(self) -> list[str]:
        """Return the code that completes the columns, in their order."""
        lines = present(self._own) if self._own is not None else []
        for column, node in self._columns:
            slot = column["slot"]
            if slot < 0:
                lines += nothing(node)
            elif slot in self._bits:
                absent = indent(self._absent(slot, node, required=column["required"]))
                lines += [f"if (!({self._has(slot)})) {{", *absent]
                if self._fields[slot]["repeated"]:
                    lines += ["} else {", *indent(arrays.finish_tensor(node, f"state.items_{slot}"))]
                lines.append("}")
        return lines

    def _absent(self, slot: int, node: Node, *, required: bool) -> list[str]:
        field = self._fields[slot]
        if field.get("always"):
            return [self._finish_part(slot)]
        if field["default"] is not None:
            return self._kernel.values.default(node, field)
        return ["fail(in, MISSING_FIELD, in.at);"] if required else nothing(node)

    def _finish_part(self, slot: int) -> str:
        return f"{self._parts[slot]}_finish<FILL>(row, state.part_{slot});"

    def _pass_over(self) -> str:
        return f"pass_over(in, {self._kernel.tables.schema}, {self._index}, tag, tag_at);"

    def _has(self, slot: int) -> str:
        bit = self._bits[slot]
        return f"state.seen[{bit // 64}] & 0x{1 << bit % 64:x}ULL"

    def _mark(self, slot: int) -> list[str]:
        return [self._has(slot).replace("&", "|=") + ";"] if slot in self._bits else []

    def _judge_rivals(self, slot: int) -> list[str]:
        rivals = [rival for rival in self._fields[slot].get("rivals", ()) if rival in self._nodes]
        return [f"if ({self._has(rival)}) unsure(in);" for rival in rivals]


def keys_type(key: Node) -> str:
    """Return the C type that holds the keys of a map."""
    return "Keys" if key.kind == "bytes" else "NumberKeys"


def _case(tag: int, lines: Sequence[str]) -> list[str]:
    return [f"case {tag}: {{", *indent(lines), "} break;"]


def _whole(name: str) -> list[str]:
    return [f"{name}_read<FILL>(row, state);", f"{name}_finish<FILL>(row, state);"]


def _begin(columns: Sequence[Node]) -> list[str]:
    """Return the code that begins the lists of an element: their items may come at any time until it ends."""
    lines: list[str] = []
    for node in columns:
        if node.kind == "list":
            lines += open_list(node)
        elif node.kind == "struct":
            lines += _begin(node.children)
    return lines


def _function(signature: str, lines: Sequence[str]) -> str:
    return "\n".join([f"template <bool FILL> FUNCTION void {signature} {{", *indent(lines), "}"])
