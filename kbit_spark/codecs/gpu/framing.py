"""Kernels for payloads whose header names the schema: one launch reads a batch that mixes them."""

from __future__ import annotations

from kbit_spark.codecs.gpu import avro
from kbit_spark.codecs.gpu.layout import Layout, NotOnGpu, function
from kbit_spark.codecs.gpu.program import Program, assemble, fault_name
from kbit_spark.codecs.plan import Plan


def program(plan: Plan) -> Program:
    """Return the kernel for framed payloads; a schema that is not known yet is the CPU's to report.

    Raises:
        NotOnGpu: a body that has no kernel.
    """
    bodies = [schema["plan"] for schema in plan["schemas"].values() if "plan" in schema]
    if plan["indexed"] or any(body["format"] != "avro" for body in bodies):
        msg = f"no kernel reads {plan['framing']} payloads but Avro"
        raise NotOnGpu(msg)
    return assemble(
        plan, (avro.PART, "framing"), lambda layout: _bodies(plan, layout), warp=any(map(avro.wants_warp, bodies))
    )


def _bodies(plan: Plan, layout: Layout) -> str:
    functions: list[str] = []
    cases: list[str] = []
    for index, (key, schema) in enumerate(plan["schemas"].items()):
        if "refused" in schema:
            action = f"fail(in, {fault_name(schema['refused']['code'])}, in.at);"
        else:
            functions.append(avro.body(schema["plan"], layout, f"body_{index}"))
            action = f"body_{index}<FILL>(row);"
        cases.append(f"  case {int(key) % 2**64}ULL: {action} break;")
    lines = [
        f"u64 id = read_{plan['framing']}(in);",
        "if (in.fault) return;",
        "switch (id) {",
        *cases,
        "  default: unsure(in);",
        "}",
    ]
    return "\n".join([*functions, function("decode_row", lines)])
