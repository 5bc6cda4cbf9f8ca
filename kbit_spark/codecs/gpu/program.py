"""Kernels made from decoder plans: the same plan that the CPU's decoder executes, as CUDA source and a column layout.

The JVM (jars/kbit-gpu) compiles a program's source, runs its two passes and puts columns together from the buffers.
The rule that keeps both engines equal: a kernel says "ok" only where the CPU decoder would, with the same value; what
it cannot vouch for it leaves to the CPU decoder, by the status `UNSURE`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from kbit_spark.codecs.gpu.layout import Layout, NotOnGpu
from kbit_spark.codecs.gpu.writes import close_function, nothing_function
from kbit_spark.codecs.plan import Plan

FAULTS = (
    "truncated",
    "trailing_bytes",
    "bad_varint",
    "bad_length",
    "type_mismatch",
    "int_overflow",
    "bad_utf8",
    "bad_enum",
    "bad_union_index",
    "depth_exceeded",
    "empty_payload",
    "bad_framing",
    "unknown_schema",
    "missing_field",
    "bad_json",
    "unbalanced_group",
    "wrong_wire_type",
)
"""The codes that kernels report; a row's status is 2 and the index of its code."""
FIRST_FAULT = 2
UNSURE = 255

__all__ = ["FAULTS", "UNSURE", "NotOnGpu", "Program", "assemble", "fault_name"]


@dataclass(frozen=True)
class Program:
    """A kernel: CUDA source, and the columns that its buffers are."""

    source: str
    layout: Layout
    warp: bool

    def to_json(self) -> str:
        """Return the text that kbit.gpu.Program reads."""
        layout = self.layout
        return json.dumps(
            {
                "source": self.source,
                "lanes": layout.lanes,
                "warp": self.warp,
                "codes": FAULTS,
                "buffers": [{"lane": b.lane, "width": b.width, "extra": b.extra} for b in layout.buffers],
                "spans": [node.span_to_json() for node in layout.spans],
                "columns": [node.to_json() for node in layout.columns],
            }
        )


def fault_name(code: str) -> str:
    """Return what kernels call a code; codes that they do not report are the CPU's to find."""
    return code.upper() if code in FAULTS else "UNSURE"


def assemble(
    plan: Plan, parts: Sequence[str], make: Callable[[Layout], str], *, head: Sequence[str] = (), warp: bool = False
) -> Program:
    """Return the program of a plan.

    Args:
        plan: a decoder plan; its `fields` are the columns.
        parts: the files under cuda/ that the generated code needs.
        make: returns the functions that define ``decode_row<FILL>(Row&)``, for a layout.
        head: definitions that the parts need.
        warp: a warp reads a row, rather than a thread.

    Raises:
        NotOnGpu: a column that RAPIDS has no type for, or a value that no kernel reads.
    """
    layout = Layout(plan["fields"])
    body = make(layout)
    faults = ", ".join(f"{code.upper()} = {FIRST_FAULT + index}" for index, code in enumerate(FAULTS))
    source = [
        f"enum Fault {{ {faults} }};",
        f"enum {{ LANES = {layout.lanes}, WARP = {int(warp)} }};",
        _read("prelude"),
        *head,
        *(_read(part) for part in parts),
        body,
        nothing_function(layout),
        close_function(layout),
        _read("kernels"),
    ]
    return Program("\n".join(source), layout, warp)


def _read(name: str) -> str:
    return resources.files("kbit_spark.codecs.gpu").joinpath(f"cuda/{name}.cuh").read_text(encoding="utf-8")


def program_for(plan: Plan) -> Program:
    """Return the kernel that decodes what `plan` describes.

    Raises:
        NotOnGpu: there is none; the message says why.
    """
    from kbit_spark.codecs.gpu import avro, framing, protobuf  # they use this module
    from kbit_spark.codecs.gpu import json as json_kernel

    makers: Mapping[str, Callable[[Plan], Program]] = {
        "avro": avro.program,
        "framed": framing.program,
        "json": json_kernel.program,
        "mongo": json_kernel.program,
        "protobuf": protobuf.program,
    }
    if plan["format"] not in makers:
        msg = f"no kernel reads {plan['format']}"
        raise NotOnGpu(msg)
    return makers[plan["format"]](plan)
