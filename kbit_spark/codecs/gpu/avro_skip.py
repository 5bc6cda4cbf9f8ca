"""Code that reads over Avro values which no column wants, and what it shares with the code that reads them."""

from __future__ import annotations

from collections.abc import Sequence

from kbit_spark.codecs.gpu.layout import NotOnGpu
from kbit_spark.codecs.gpu.text import block, indent
from kbit_spark.codecs.plan import Plan

NUMBERS = {
    "boolean": "read_boolean(in)",
    "int": "read_int(in)",
    "long": "read_long(in)",
    "float": "float_of((u32)read_bits(in, 4))",
    "double": "double_of(read_bits(in, 8))",
    "int_as_long": "read_int(in)",
    "int_as_float": "read_int(in)",
    "int_as_double": "read_int(in)",
    "long_as_float": "read_long(in)",
    "long_as_double": "read_long(in)",
    "float_as_double": "float_of((u32)read_bits(in, 4))",
    "date": "read_int(in)",
    "time_millis": "read_time_millis(in)",
    "time_micros": "read_time_micros(in)",
}
"""What reads a number, by the name of its reader."""

_SKIPS = {
    "boolean": "read_boolean(in);",
    "int": "read_int(in);",
    "long": "read_long(in);",
    "float": "skip(in, 4);",
    "double": "skip(in, 8);",
    "bytes": "read_bytes(in);",
    "string": "read_text(in);",
}
_SAME_RECORD = 3
"""How often a record that contains itself is read over before the CPU takes the row."""
_EMPTY = ("null",)


class Skipper:
    """Writes the code that skips.

    Args:
        records: the plan's records by name, each a list of what to skip.
    """

    def __init__(self, records: Plan) -> None:
        self._records = records
        self._open: list[str] = []

    def skip(self, plan: Plan) -> list[str]:
        """Read over a value, with the checks that the CPU makes of it."""
        op = plan["op"]
        if op in _SKIPS:
            return [_SKIPS[op]]
        match op:
            case "null":
                return []
            case "fixed":
                return [f"skip(in, {plan['size']});"]
            case "enum":
                return [f"read_index(in, {plan['symbols']}, BAD_ENUM);"]
            case "union":
                return block(union([self.skip(branch) for branch in plan["branches"]]))
            case "array" | "map":
                return self._skip_items(plan)
            case "record":
                return self._skip_record(plan["name"])
            case "checked":
                return self._check(plan["reader"])
        msg = f"no kernel skips Avro's {op}"
        raise NotOnGpu(msg)

    def _skip_items(self, plan: Plan) -> list[str]:
        keyed = plan["op"] == "map"
        item = plan["values"] if keyed else plan["items"]
        if not keyed and self._is_empty(item):
            return block(blocks(["break;"]))  # a huge count of them costs nothing
        lines = (["read_text(in);"] if keyed else []) + self.skip(item)
        return block(blocks([*lines, "left--;"]))

    def _skip_record(self, name: str) -> list[str]:
        if self._open.count(name) >= _SAME_RECORD:
            return ["unsure(in);"]
        self._open.append(name)
        try:
            return [line for field in self._records[name] for line in self.skip(field)]
        finally:
            self._open.pop()

    def _is_empty(self, plan: Plan) -> bool:
        if plan["op"] == "record":
            if plan["name"] in self._open:
                return False
            self._open.append(plan["name"])
            try:
                return all(self._is_empty(field) for field in self._records[plan["name"]])
            finally:
                self._open.pop()
        return plan["op"] in _EMPTY or (plan["op"] == "fixed" and plan["size"] == 0)

    def _check(self, plan: Plan) -> list[str]:
        """Read a logical type for its checks alone."""
        match plan["read"]:
            case "decimal":
                return [f"read_decimal(in, {plan['size']}, {limit(plan)});"]
            case "uuid":
                return [f"read_uuid(in, {plan['size']}, (u8*)0);"]
            case "timestamp" | "timestamp_ntz":
                return [f"read_timestamp(in, {plan['per_second']});"]
            case kind:
                return [f"{NUMBERS[kind]};"]


def limit(plan: Plan) -> str:
    """Return the least number of too many digits for a decimal."""
    least = 10 ** plan["precision"]
    return f"Wide{{{least % 2**64}ULL, {least >> 64}LL}}"


def union(branches: Sequence[Sequence[str]]) -> list[str]:
    """Return the choice of a branch by its index in the payload."""
    lines = ["const u8* start = in.at;", f"switch (read_index(in, {len(branches)}, BAD_UNION_INDEX)) {{"]
    for index, branch in enumerate(branches):
        lines += [f"  case {index}: {{", *indent(indent(branch)), "  } break;"]
    return [*lines, "}"]


def blocks(lines: Sequence[str], first: Sequence[str] = ()) -> list[str]:
    """Return the walk over the blocks of an array: `first` once a block, `lines` while `left` items are left in it."""
    return [
        "Blocks blocks = {0, 0, 0};",
        "for (i64 left = next_block(in, blocks); left; left = next_block(in, blocks)) {",
        *indent(first),
        "  while (left > 0 && !in.fault) {",
        *indent(indent(lines)),
        "  }",
        "}",
    ]
