"""Code that writes elements of a row where its layout has them; `FILL` is false in the pass that counts."""

from __future__ import annotations

from collections.abc import Sequence

from kbit_spark.codecs.gpu.layout import Layout, Node


def function(name: str, lines: Sequence[str], *, inline: bool = True) -> str:
    """Return a function of a row as text."""
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


def nothing_function(layout: Layout) -> str:
    """Return the function that writes nulls into a row that is none."""
    lines = [line for column in layout.columns for line in nothing(column)]
    return function("decode_nothing", lines)


def close_function(layout: Layout) -> str:
    """Return the function that writes the end of the last list of every lane."""
    lines = []
    for node in layout.nodes():
        if node.offsets < 0:
            continue
        end = f"n * {node.stride}" if node.child is None else _total(node.child)
        lines.append(f"((i32*)buffers[{node.offsets}])[{_total(node.lane)}] = (i32)({end});")
    body = "\n".join(f"  {line}" for line in lines)
    return f"DEVICE inline void close_offsets(u8* const* buffers, const i64* bases, i64 n) {{\n{body}\n}}"


def _total(lane: int) -> str:
    return "n" if lane == 0 else f"bases[{lane - 1} * (n + 1) + n]"
