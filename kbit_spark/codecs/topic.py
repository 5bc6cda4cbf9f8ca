"""Decoding of one topic: its plan under each framing that it may have, and the schemas that its records named."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, SparkSession

from kbit_spark.codecs.decoder import DecodeFunction, unresolved_ids
from kbit_spark.codecs.framing import UNRESOLVED, ConfluentSchemas, raw_plan, read_reader_schema, read_schemas, soe_plan
from kbit_spark.codecs.gpu.functions import Decode, GpuFunctions
from kbit_spark.codecs.gpu.program import NotOnGpu, Program
from kbit_spark.codecs.plan import Plan
from kbit_spark.codecs.registry import SchemaRegistry
from kbit_spark.config.kafka import TopicConfig
from kbit_spark.schemas.base import Engine
from kbit_spark.schemas.fields import FieldSpec

log = logging.getLogger("kbit")


class TopicDecoder:
    """The plans of one topic under each framing that it may have."""

    def __init__(
        self,
        spark: SparkSession,
        config: TopicConfig,
        framings: Sequence[str],
        fields: Sequence[FieldSpec],
        registry: SchemaRegistry | None,
        gpu: GpuFunctions | None = None,
    ) -> None:
        """Read the schemas that stand in files; `gpu` is None where the session has no GPU.

        Raises:
            UsageError: one that cannot be read or can never give the fields.
        """
        self.name = config.name
        self.framing = framings[0]
        self.settled = len(framings) == 1
        self._spark = spark
        self._config = config
        self._framings = tuple(framings)
        self._confluent = ConfluentSchemas(config, fields, registry) if "confluent" in framings and registry else None
        self._unresolved = unresolved_ids(spark)
        self._gpu = gpu
        self._functions: dict[Engine, Decode] = {}
        self._kernel: Program | NotOnGpu | None = None
        self._plan_name = ""
        self.take(fields)

    def take(self, fields: Sequence[FieldSpec]) -> None:
        """Decode into this row from now on.

        Raises:
            UsageError: a schema in a file can never give it; then the row is as it was.
        """
        self._fixed = self._fixed_plans(fields)
        self._fields = fields
        if self._confluent is not None:
            self._confluent.fields = fields
        self._forget()

    def further_fields(self) -> list[FieldSpec]:
        """Return the fields of schemas learned since the last call that the row lacks, as nullable ones."""
        return [] if self._confluent is None else self._confluent.further_fields()

    def column(self, value: Column, engine: Engine = "cpu") -> Column:
        """Return the decoded payload of the topic's records, as far as their schemas are known now."""
        if engine not in self._functions:
            self._functions[engine] = self._function(engine)
        return self._functions[engine](value)

    def _function(self, engine: Engine) -> Decode:
        plan = self._plan(self.framing)
        if engine == "cpu":
            return DecodeFunction(self._spark, plan, self._fields, self._unresolved)
        kernel = self.kernel()
        assert self._gpu is not None
        assert not isinstance(kernel, NotOnGpu)
        return self._gpu.decoder(plan, kernel, self._fields, self._unresolved)

    def kernel(self) -> Program | NotOnGpu:
        """Return the kernel of the topic's plan as it stands, or why there is none."""
        if self._kernel is None:
            try:
                self._kernel = self._gpu.program(self._plan(self.framing)) if self._gpu else NotOnGpu("there is no GPU")
            except NotOnGpu as refusal:
                self._kernel = refusal
        return self._kernel

    def plan_name(self) -> str:
        """Return what names the topic's plan as it stands: another schema gives another name."""
        if not self._plan_name:
            text = json.dumps([self.name, self.framing, self._plan(self.framing)])
            self._plan_name = hashlib.sha256(text.encode()).hexdigest()[:12]
        return self._plan_name

    def _forget(self) -> None:
        """Make everything anew that was made from the plan."""
        self._functions.clear()
        self._kernel = None
        self._plan_name = ""

    def resolve_new(self) -> bool:
        """Ask the registry for the ids that records named since the last call; False where there were none."""
        if self._unresolved.isZero():  # to find a set empty by its iterator takes 70 calls
            return False
        self._learn([int(schema_id) for schema_id in self._unresolved.value()])
        self._unresolved.reset()  # behind the answers: after an outage the ids are still there
        return True

    def settle(self, payloads: Sequence[bytes]) -> None:
        """Decide the framing by the first payloads; it stays undecided while none of them decodes."""
        if not payloads:
            return
        rates = {framing: self._trial(framing, payloads) for framing in self._framings}
        best = max(rates, key=lambda framing: rates[framing])  # of equals the first: the most telling header
        self.settled = rates[best][0] > 0
        if best != self.framing:
            self.framing = best
            self._forget()
        found = f"{rates[best][0]} of its first {len(payloads)} records decode"
        log.info("topic %s: framing %s (%s)%s", self.name, best, found, "" if self.settled else "; asked again")

    def _trial(self, framing: str, payloads: Sequence[bytes]) -> tuple[int, int]:
        """Return how many payloads decode under a framing, and how many have its header."""
        results = self._decode(self._plan(framing), payloads)
        if framing == "confluent" and (found := _ids_named(results, payloads)):
            self._learn(found)
            results = self._decode(self._plan(framing), payloads)
        good = sum("value" in result for result in results)
        return good, sum(framing != "raw" and result.get("error") != "bad_framing" for result in results)

    def _decode(self, plan: Plan, payloads: Sequence[bytes]) -> list[Mapping[str, object]]:
        jvm = self._spark.sparkContext._jvm
        assert jvm is not None
        return [json.loads(line) for line in jvm.kbit.decode.Decoders.decodeToJson(json.dumps(plan), list(payloads))]

    def _fixed_plans(self, fields: Sequence[FieldSpec]) -> dict[str, Plan]:
        """Plan the framings whose schemas stand in files."""
        config = self._config
        plans = {"raw": raw_plan(config, fields)} if "raw" in self._framings else {}
        if "soe" in self._framings:
            plans["soe"] = soe_plan(read_schemas(config), fields, read_reader_schema(config))
        return plans

    def _plan(self, framing: str) -> Plan:
        if framing == "confluent":
            assert self._confluent is not None
            return self._confluent.plan()
        return self._fixed[framing]

    def _learn(self, ids: Sequence[int]) -> None:
        assert self._confluent is not None
        for schema_id in ids:
            self._confluent.learn(schema_id)
        self._forget()


def _ids_named(results: Sequence[Mapping[str, object]], payloads: Sequence[bytes]) -> list[int]:
    found = zip(results, payloads, strict=True)
    return sorted({int.from_bytes(value[1:5], "big") for result, value in found if result.get("error") == UNRESOLVED})
