"""Where decoded values go on the GPU: columns as cuDF has them, made of flat buffers.

Every column's elements live in a *lane*. Lane 0 has the rows; a list or string opens a lane of its own for its items or
bytes. A first pass counts each row's elements in every lane, prefix sums turn the counts into places, and a second pass
writes. Within a row the elements of a lane come in the order in which they are written, so that the offsets of a list
are the places at which its items begin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbit_spark.codecs.gpu.tensors import tensor_item_bytes, tensor_items
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


def _decimal_type(precision: int) -> str:
    return "i32" if precision <= 9 else "i64" if precision <= 18 else "Wide"
