"""What a kernel knows of every Protobuf field, so that it can check those that no column wants."""

from __future__ import annotations

from collections.abc import Mapping

from kbit_spark.codecs.gpu.layout import NotOnGpu
from kbit_spark.codecs.plan import Plan

WIRE_TYPES = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool", "enum"), 0),
    **dict.fromkeys(("fixed64", "sfixed64", "double"), 1),
    **dict.fromkeys(("string", "bytes", "message", "map"), 2),
    "group": 3,
    **dict.fromkeys(("fixed32", "sfixed32", "float"), 5),
}
LENGTH = 2
FIXED_WIDTHS = {1: 8, 5: 4}
"""Bytes of an item by its wire type, where they are always as many."""
UNSIGNED = ("uint64", "fixed64")
"""Kinds whose numbers a signed one of 64 bits may not hold."""
_MOST_REQUIRED = 32


def is_packable(field: Plan) -> bool:
    """Tell whether several values may stand behind one tag."""
    return bool(field["repeated"]) and WIRE_TYPES[field["kind"]] in (0, 1, 5)


def enum_numbers(field: Plan) -> list[int]:
    """Return the numbers of a field's enum that have names, in ascending order."""
    return sorted(map(int, field["symbols"]))


class Tables:
    """The fields of a plan's messages, as arrays of `Field` and `Message` (cuda/protobuf.cuh)."""

    def __init__(self, messages: Mapping[str, Plan], name: str) -> None:
        """Number the messages; `name` begins the names of the arrays.

        Raises:
            NotOnGpu: a message has too many required fields.
        """
        self.index = {key: index for index, key in enumerate(messages)}
        self.schema = f"{name}_schema()"
        """An expression for all of it."""

        self._name = name
        self._fields: list[str] = []
        self._numbers: list[int] = []
        self._messages = [self._message(plan) for plan in messages.values()]

    def declarations(self) -> str:
        """Return the arrays' definitions; each has an element more, so that none is empty."""
        name = self._name
        parts = {"Field": self._fields, "Message": self._messages, "i32": [str(number) for number in self._numbers]}
        names = {kind: f"{name}_{kind.lower()}s" for kind in parts}
        lines = [
            f"DEVICE const {kind} {names[kind]}[] = {{{', '.join([*parts[kind], '0' if kind == 'i32' else '{}'])}}};"
            for kind in parts
        ]
        schema = f"Schema{{{', '.join(names.values())}}}"
        return "\n".join([*lines, f"DEVICE inline Schema {self.schema} {{ return {schema}; }}"])

    def _message(self, plan: Plan) -> str:
        first = len(self._fields)
        required = [] if plan["columns"] else [field["number"] for field in plan["fields"] if field["must_occur"]]
        if len(required) > _MOST_REQUIRED:
            msg = f"the message {plan['name']} has more than {_MOST_REQUIRED} required fields"
            raise NotOnGpu(msg)
        bits = {number: 1 << bit for bit, number in enumerate(required)}
        for field in sorted(plan["fields"], key=lambda field: int(field["number"])):
            part, count = self._part(field)
            kind = "message" if field["kind"] == "map" else field["kind"]
            bit = bits.get(field["number"], 0)
            numbers = f"{int(is_packable(field))}, {part}, {count}, {bit}u"
            self._fields.append(f"{{{field['number']}, {kind.upper()}, {numbers}}}")
        return f"{{{first}, {len(self._fields) - first}, {sum(bits.values())}u}}"

    def _part(self, field: Plan) -> tuple[int, int]:
        if field["kind"] == "group" and field["wanted"]:
            return -1, -1
        if "message" in field:
            return self.index[field["message"]], -1
        if field["kind"] == "enum" and field["closed"]:
            numbers = enum_numbers(field)
            self._numbers += numbers
            return len(self._numbers) - len(numbers), len(numbers)
        return 0, -1
