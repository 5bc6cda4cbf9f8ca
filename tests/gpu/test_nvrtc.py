"""The same sources, compiled for a GPU by NVRTC, which needs none."""

from __future__ import annotations

import json

import pytest

from kbit_spark.cli.decode.protobuf_rows import compiled, whole_plan
from kbit_spark.codecs.avro import avro_plan
from kbit_spark.codecs.gpu.program import program_for
from kbit_spark.codecs.json import json_plan
from kbit_spark.codecs.mongo import mongo_plan
from kbit_spark.codecs.plan import Plan
from kbit_spark.codecs.protobuf import protobuf_plan
from kbit_spark.schemas.fields import FieldSpec, Tensor
from tests.codecs.test_mutations import FIELDS, WRITER
from tests.codecs.test_protobuf import RICH
from tests.gpu.nvrtc import CompileError, compile_cubin
from tests.gpu.test_kernels import ROW
from tests.gpu.test_protobuf import DTYPES, TENSORS


def _tensors() -> Plan:
    fields = [FieldSpec(name=n, tensor=Tensor.model_validate({"dtype": d, "shape": (99,)})) for n, d in DTYPES.items()]
    return protobuf_plan(compiled(TENSORS).message("T"), fields, "tensors.proto")


PLANS = {
    "avro": lambda: avro_plan(json.dumps(WRITER), FIELDS, "row.avsc"),
    "protobuf": lambda: whole_plan(compiled(RICH).message("rich.Row")),
    "protobuf-tensors": _tensors,
    "json": lambda: json_plan(ROW),
    "mongo": lambda: mongo_plan(ROW),
}


@pytest.mark.parametrize("name", PLANS)
def test_sources_compile_for_a_gpu(name: str) -> None:
    plan = PLANS[name]()
    plan = plan if name == "protobuf-tensors" else _framed(plan)
    assert compile_cubin(program_for(plan).source, "sm_90").startswith(b"\x7fELF")


def _framed(plan: Plan) -> Plan:
    """Return the plan behind Confluent's header, for Protobuf with its list of messages."""
    indexed = plan["format"] == "protobuf"
    schema = {"messages": {"0": {"plan": plan}}} if indexed else {"plan": plan}
    framed = {"format": "framed", "framing": "confluent", "fields": plan["fields"], "schemas": {"7": schema}}
    return {**framed, "unknown": [], "resolvable": True, "indexed": indexed}


def test_a_fault_is_told_with_its_line() -> None:
    with pytest.raises(CompileError, match=r"kernel.cu\(2\): error"):
        compile_cubin("int a;\nint b = c;", "sm_90")
