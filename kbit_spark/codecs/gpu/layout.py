"""Where decoded values go on the GPU: columns as cuDF has them, made of flat buffers.

Every column's elements live in a *lane*. Lane 0 has the rows; a list or string opens a lane of its own for its items or
bytes. A first pass counts each row's elements in every lane, prefix sums turn the counts into places, and a second pass
writes. Within a row the elements of a lane come in the order in which they are written, so that the offsets of a list
are the places at which its items begin.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbit_spark.codecs.plan import Plan
from kbit_spark.column_types import TypeTree, type_text


class NotOnGpu(Exception):  # noqa: N818 - it is a property of a plan, not a fault
    """There is no kernel for a plan; the message says why. The CPU decodes it."""


C_TYPES = {
    "boolean": "u8",
    "byte": "i8",
    "short": "i16",
    "int": "i32",
    "long": "i64",
    "float": "float",
    "double": "double",
    "date": "i32",
    "timestamp": "i64",
}
_WIDTHS = {"u8": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "float": 4, "double": 8, "Wide": 16}
_MAX_DEPTH = 16
WARP_ITEMS = 64
"""From so many numbers on, a warp reads a tensor faster than a thread."""


@dataclass(frozen=True)
class Buffer:
    """`width` bytes for each element of a lane, and for `extra` more."""

    lane: int
    width: int
    extra: int = 0


@dataclass
class Node:
    """A column. What a field means depends on `kind`: fixed, bytes, list, struct (docs/decisions/0016)."""

    kind: str
    lane: int
    tree: Any
    nullable: bool
    c_type: str = ""
    data: int = -1
    valid: int | None = None
    offsets: int = -1
    source: int = -1
    child: int | None = None
    stride: int = 0
    item: Node | None = None
    children: list[Node] = field(default_factory=list)

    def to_json(self) -> Plan:
        """Return the node as kbit.gpu.Program reads it."""
        plan: Plan = {"kind": self.kind, "lane": self.lane, "valid": self.valid}
        match self.kind:
            case "fixed":
                plan |= {"type": self.tree, "data": self.data}
            case "bytes":
                text = self.tree == "string"
                plan |= {"string": text, "offsets": self.offsets, "data": self.data, "child": self.child}
            case "list":
                assert self.item is not None
                plan |= {"offsets": self.offsets, "child": self.child, "item": self.item.to_json()}
            case _:
                plan |= {"children": [child.to_json() for child in self.children]}
        return plan

    def span_to_json(self) -> Plan:
        """Return the copy that puts the node's bytes in their place."""
        return {"lane": self.lane, "source": self.source, "offsets": self.offsets, "data": self.data}

    def inner(self) -> Iterator[Node]:
        """Yield the node and all below it."""
        yield self
        for child in [*self.children, *([self.item] if self.item else [])]:
            yield from child.inner()


class Layout:
    """The columns of a row type."""

    def __init__(self, fields: Sequence[Plan]) -> None:
        """Lay out `fields`, as `plan_of_fields` gives them.

        Raises:
            NotOnGpu: a column's type is not to be had there.
        """
        self.lanes = 0
        self.buffers: list[Buffer] = []
        self.columns = [self._column(field) for field in fields]

    @property
    def spans(self) -> list[Node]:
        """Nodes whose bytes are copied after the second pass."""
        return [node for node in self.nodes() if node.kind == "bytes"]

    def nodes(self) -> Iterator[Node]:
        """Yield every node."""
        for column in self.columns:
            yield from column.inner()

    def _column(self, field: Plan) -> Node:
        if "tensor" in field:
            return self._tensor(field["tensor"], nullable=not field["required"])
        return self._node(field["type"], 0, nullable=not field["required"], depth=0)

    def _tensor(self, tensor: Plan, *, nullable: bool) -> Node:
        stride = tensor_items(tensor) * tensor_item_bytes(tensor)
        if nullable:  # a null takes no bytes, so its place must be counted
            node = self._bytes("binary", 0, nullable=True)
        else:
            node = Node("bytes", 0, "binary", nullable=False)
            node.offsets, node.source = self._buffer(0, 4, extra=1), self._buffer(0, 8)
            node.data = self._buffer(0, stride)
        node.stride = stride
        return node

    def _node(self, tree: TypeTree, lane: int, *, nullable: bool, depth: int) -> Node:
        if depth > _MAX_DEPTH:
            msg = f"columns nested more than {_MAX_DEPTH} levels deep"
            raise NotOnGpu(msg)
        if tree in ("string", "binary"):
            return self._bytes(tree, lane, nullable=nullable)
        kind = "fixed" if isinstance(tree, str) or tree["type"] == "decimal" else tree["type"]
        if kind == "fixed":
            return self._fixed(tree, lane, nullable=nullable)
        node = Node("struct" if kind == "struct" else "list", lane, tree, nullable, valid=self._valid(lane, nullable))
        assert isinstance(tree, dict)
        if kind == "struct":
            node.children = [
                self._node(part["type"], lane, nullable=not part["required"], depth=depth + 1)
                for part in tree["fields"]
            ]
            return node
        node.offsets, node.child = self._buffer(lane, 4, extra=1), self._lane()
        if kind == "array":
            node.item = self._node(tree["items"], node.child, nullable=True, depth=depth + 1)
        else:
            pair = Node("struct", node.child, tree, nullable=False)
            pair.children = [
                self._node(tree["keys"], node.child, nullable=False, depth=depth + 1),
                self._node(tree["values"], node.child, nullable=True, depth=depth + 1),
            ]
            node.item = pair
        return node

    def _fixed(self, tree: TypeTree, lane: int, *, nullable: bool) -> Node:
        c_type = _decimal_type(tree["precision"]) if isinstance(tree, dict) else C_TYPES.get(tree)
        if c_type is None:
            msg = f"RAPIDS has no columns of type {type_text(tree)}"
            raise NotOnGpu(msg)
        data = self._buffer(lane, _WIDTHS[c_type])
        return Node("fixed", lane, tree, nullable, c_type, data, self._valid(lane, nullable))

    def _bytes(self, tree: TypeTree, lane: int, *, nullable: bool) -> Node:
        node = Node("bytes", lane, tree, nullable, valid=self._valid(lane, nullable))
        node.offsets, node.source = self._buffer(lane, 4, extra=1), self._buffer(lane, 8)
        node.child = self._lane()
        node.data = self._buffer(node.child, 1)
        return node

    def _lane(self) -> int:
        self.lanes += 1
        return self.lanes

    def _buffer(self, lane: int, width: int, extra: int = 0) -> int:
        self.buffers.append(Buffer(lane, width, extra))
        return len(self.buffers) - 1

    def _valid(self, lane: int, nullable: bool) -> int | None:
        return self._buffer(lane, 1) if nullable else None

    def nothing_function(self) -> str:
        """Return the function that writes nulls into a row that is none."""
        lines = [line for column in self.columns for line in nothing(column)]
        return function("decode_nothing", lines)

    def close_function(self) -> str:
        """Return the function that writes the end of the last list of every lane."""
        lines = []
        for node in self.nodes():
            if node.offsets < 0:
                continue
            end = f"n * {node.stride}" if node.child is None else _total(node.child)
            lines.append(f"((i32*)buffers[{node.offsets}])[{_total(node.lane)}] = (i32)({end});")
        body = "\n".join(f"  {line}" for line in lines)
        return f"DEVICE inline void close_offsets(u8* const* buffers, const i64* bases, i64 n) {{\n{body}\n}}"


def function(name: str, lines: Sequence[str], *, inline: bool = True) -> str:
    """Return a function of a row as text; `FILL` is false in the pass that counts."""
    kind = "DEVICE inline" if inline else "FUNCTION"
    body = "\n".join(f"  {line}" for line in lines)
    return f"template <bool FILL> {kind} void {name}(Row& row) {{\n  Cursor& in = row.in;\n{body}\n}}"


def store(node: Node, value: str) -> list[str]:
    """Return the code that writes a number where `node` stands."""
    # read in both passes, stored in one
    return [
        f"{{ {node.c_type} read = {value}; STORE({node.c_type}, {node.data}, {node.lane}, read); }}",
        *present(node),
    ]


def present(node: Node) -> list[str]:
    """Return the code that marks the element as not null."""
    return [] if node.valid is None else [f"STORE(u8, {node.valid}, {node.lane}, 1);"]


def open_list(node: Node) -> list[str]:
    """Return the code that begins a list, of items or of bytes."""
    start = f"row.next[0] * {node.stride}" if node.child is None else f"row.next[{node.child}]"
    return [f"STORE(i32, {node.offsets}, {node.lane}, {start});", *present(node)]


def span(node: Node, pointer: str, length: str) -> list[str]:
    """Return the code that takes `length` bytes at `pointer` as the element."""
    taken = [] if node.child is None else [f"row.next[{node.child}] += {length};"]
    source = f"(u64)({pointer}) - (u64)row.data"
    return [*open_list(node), f"STORE(i64, {node.source}, {node.lane}, {source});", *taken]


def written(node: Node, length: str) -> list[str]:
    """Return the code for an element whose bytes the thread has written to `place` itself."""
    taken = [] if node.child is None else [f"row.next[{node.child}] += {length};"]
    return [*open_list(node), f"STORE(i64, {node.source}, {node.lane}, NO_SOURCE);", *taken]


def place(node: Node) -> str:
    """Return an expression for where the element's bytes go; null in the pass that counts."""
    start = f"row.next[0] * {node.stride}LL" if node.child is None else f"row.next[{node.child}]"
    return f"(FILL ? row.buffers[{node.data}] + {start} : (u8*)0)"


def nothing(node: Node) -> list[str]:
    """Return the code that writes a null, or as much as a column without nulls has for it."""
    marked = [] if node.valid is None else [f"STORE(u8, {node.valid}, {node.lane}, 0);"]
    match node.kind:
        case "fixed":
            zero = "(Wide{0, 0})" if node.c_type == "Wide" else "0"
            return [f"STORE({node.c_type}, {node.data}, {node.lane}, {zero});", *marked]
        case "struct":
            return marked + [line for child in node.children for line in nothing(child)]
    lines = open_list(node)[:1]
    if node.source >= 0:
        lines.append(f"STORE(i64, {node.source}, {node.lane}, NO_SOURCE);")
    return lines + marked


def tensor_item_bytes(tensor: Plan) -> int:
    """Return the bytes of an item."""
    return int("".join(c for c in tensor["dtype"] if c.isdigit())) // 8


def tensor_item_type(tensor: Plan) -> str:
    """Return the C type of an item."""
    size = 8 * tensor_item_bytes(tensor)
    if tensor["dtype"].startswith("float"):
        return {32: "float", 64: "double"}[size]
    return f"{'u' if tensor['dtype'].startswith('u') else 'i'}{size}"


def tensor_limits(tensor: Plan) -> tuple[int, int]:
    """Return the least and the largest integer that an item holds."""
    bits = 8 * tensor_item_bytes(tensor)
    return (0, 2**bits - 1) if tensor["dtype"].startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def tensor_items(tensor: Plan) -> int:
    """Return the number of items."""
    return math.prod(tensor["shape"])


def tensor_fits(tensor: Plan) -> str:
    """Return the condition that the integer `value` is one of the tensor's."""
    low, high = tensor_limits(tensor)
    if tensor["dtype"].startswith("float") or (low <= -(2**63) and high >= 2**63 - 1):
        return "true"
    return f"value >= {low}LL && value <= {high}LL"


def _decimal_type(precision: int) -> str:
    return "i32" if precision <= 9 else "i64" if precision <= 18 else "Wide"


def _total(lane: int) -> str:
    return "n" if lane == 0 else f"bases[{lane - 1} * (n + 1) + n]"
