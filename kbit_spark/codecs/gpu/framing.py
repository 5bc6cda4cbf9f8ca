"""Kernels for payloads whose header names the schema: one launch reads a batch that mixes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kbit_spark.codecs.gpu import avro, protobuf
from kbit_spark.codecs.gpu import json as json_kernel
from kbit_spark.codecs.gpu.constants import Constants
from kbit_spark.codecs.gpu.layout import Layout, NotOnGpu
from kbit_spark.codecs.gpu.program import Program, assemble, fault_name
from kbit_spark.codecs.gpu.text import indent
from kbit_spark.codecs.gpu.writes import function
from kbit_spark.codecs.plan import Plan


@dataclass(frozen=True)
class _Format:
    parts: tuple[str, ...]
    body: Callable[[Plan, Layout, str], str]
    wants_warp: Callable[[Plan], bool]
    head: Callable[[Plan], list[str]] = lambda plan: []


_FORMATS = {
    "avro": _Format(avro.PARTS, avro.body, avro.wants_warp),
    "protobuf": _Format(protobuf.PARTS, protobuf.body, protobuf.wants_warp),
    "json": _Format(json_kernel.PARTS, json_kernel.body, json_kernel.wants_warp, json_kernel.head),
    "mongo": _Format(json_kernel.PARTS, json_kernel.body, json_kernel.wants_warp, json_kernel.head),
}


def program(plan: Plan) -> Program:
    """Return the kernel for framed payloads; a schema that is not known yet is the CPU's to report.

    Raises:
        NotOnGpu: a body that has no kernel.
    """
    bodies = list(_plans(plan["schemas"]))
    names = {body["format"] for body in bodies} or {"protobuf" if plan["indexed"] else "avro"}
    if not names <= _FORMATS.keys() or len(names) > 1:
        msg = f"no kernel reads {plan['framing']} payloads of {', '.join(sorted(names))}"
        raise NotOnGpu(msg)
    kind = _FORMATS[names.pop()]
    parts = (*kind.parts, "framing", *(["message_indexes"] if plan["indexed"] else []))
    head = kind.head(bodies[0]) if bodies else []
    warp = any(map(kind.wants_warp, bodies))
    return assemble(plan, parts, lambda layout: _Framed(kind, layout).text(plan), head=head, warp=warp)


def _plans(schemas: Mapping[str, Any]) -> Iterator[Plan]:
    for schema in schemas.values():
        if "plan" in schema:
            yield schema["plan"]
        yield from _plans(schema.get("messages", {}))


class _Framed:
    """Writes the function that chooses the body; schemas whose plans are the same share one."""

    def __init__(self, kind: _Format, layout: Layout) -> None:
        self._kind = kind
        self._layout = layout
        self._bodies: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._constants = Constants("paths")

    def text(self, plan: Plan) -> str:
        """Return `decode_row` and what it needs."""
        cases: list[str] = []
        for key, schema in plan["schemas"].items():
            cases += [f"case {int(key) % 2**64}ULL: {{", *indent(self._schema(schema)), "} break;"]
        indexes = ["Indexes path;", "read_indexes(in, path);"] if plan["indexed"] else []
        lines = [
            f"u64 id = read_{plan['framing']}(in);",
            "const u8* header_end = in.at;",
            "if (in.fault) return;",
            *indexes,
            "if (in.fault) return;",
            "switch (id) {",
            *indent(cases),
            "  default: unsure(in);",
            "}",
        ]
        return "\n".join([self._constants.declarations(), *self._bodies.values(), function("decode_row", lines)])

    def _schema(self, schema: Plan) -> list[str]:
        if "messages" not in schema:
            return [self._body(schema)]
        paths = [[int(index) for index in path.split(",")] for path in schema["messages"]]
        known = self._constants.numbers([number for path in paths for number in (len(path), *path)] or [0])
        lines = [f"switch (find_path(in, path, {known}, {len(paths)})) {{"]
        lines += [f"  case {i}: {self._body(message)} break;" for i, message in enumerate(schema["messages"].values())]
        return [*lines, "  default: fail(in, BAD_FRAMING, header_end);", "}"]

    def _body(self, schema: Plan) -> str:
        if "refused" in schema:
            return f"fail(in, {fault_name(schema['refused']['code'])}, in.at);"
        key = json.dumps(schema["plan"], sort_keys=True)
        if key not in self._bodies:
            name = self._names[key] = f"body_{len(self._names)}"
            self._bodies[key] = self._kind.body(schema["plan"], self._layout, name)
        return f"{self._names[key]}<FILL>(row);"
