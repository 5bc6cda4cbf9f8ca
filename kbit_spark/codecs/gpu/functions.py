"""The decoders of kbit-gpu as functions of columns: RAPIDS runs them by column, with the CPU decoder's own answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from py4j.java_gateway import JavaClass, JavaObject
from pyspark.sql import Column, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn

from kbit_spark.codecs.decoder import DecodeFunction
from kbit_spark.codecs.gpu.program import Program, program_for
from kbit_spark.codecs.plan import Plan
from kbit_spark.rapids import PLUGIN, is_asked_for
from kbit_spark.schemas import FieldSpec


@dataclass(frozen=True)
class Refereed:
    """Rows of a batch that the GPU left to the CPU decoder, and those of them that the two had judged differently."""

    rows: int = 0
    differences: int = 0


class GpuFunctions(Protocol):
    """What makes functions for the GPU: RAPIDS, or what stands in for it in a test."""

    def program(self, plan: Plan) -> Program:
        """Return the kernel of a plan.

        Raises:
            NotOnGpu: there is none.
        """

    def decoder(self, plan: Plan, program: Program, fields: Sequence[FieldSpec], unresolved: JavaObject) -> Decode:
        """Return the decoder of a plan; `unresolved`: see `DecodeFunction`."""

    def schema_id(self, value: Column) -> Column:
        """Return the registry's id in a payload's header as an int, null where it has none."""

    def reset(self) -> None:
        """Count from zero."""

    def refereed(self) -> Refereed:
        """Return what was counted since the last `reset`."""


class Decode(Protocol):
    """A decoder as a function of columns."""

    def __call__(self, value: Column) -> Column:
        """Return the decoded payload of `value`."""


class RapidsFunctions:
    """The functions of kbit-gpu; they share two counters."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm: Any = spark.sparkContext._jvm
        context: Any = spark.sparkContext._jsc.sc()
        self._counters = [context.longAccumulator(f"kbit.{name}") for name in ("refereed", "differences")]

    def program(self, plan: Plan) -> Program:
        """See `GpuFunctions`."""
        return program_for(plan)

    def decoder(self, plan: Plan, program: Program, fields: Sequence[FieldSpec], unresolved: JavaObject) -> Decode:
        """See `GpuFunctions`."""
        return _GpuDecodeFunction(self._spark, plan, program, fields, unresolved, self._counters)

    def schema_id(self, value: Column) -> Column:
        """See `GpuFunctions`; RAPIDS has no substring of binary."""
        return ClassicColumn(self._jvm.kbit.gpu.SchemaIdUdf.of().apply(self._jvm.PythonUtils.toSeq([value._jc])))

    def reset(self) -> None:
        """See `GpuFunctions`."""
        for counter in self._counters:
            counter.reset()

    def refereed(self) -> Refereed:
        """See `GpuFunctions`."""
        return Refereed(*(int(counter.sum()) for counter in self._counters))


class _GpuDecodeFunction(DecodeFunction):
    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        program: Program,
        fields: Sequence[FieldSpec],
        unresolved: JavaObject,
        counters: Sequence[JavaObject],
    ) -> None:
        self._program = program
        self._counters = counters
        super().__init__(spark, plan, fields, unresolved)

    def _make(self, plan: str, unresolved: JavaObject, result: JavaObject) -> Any:
        return self._jvm.kbit.gpu.GpuDecodeUdf.of(plan, self._program.to_json(), unresolved, *self._counters, result)


def rapids_functions(spark: SparkSession) -> RapidsFunctions | str:
    """Return the functions of this session, or why the GPU decodes nothing in it."""
    settings = spark.sparkContext.getConf()
    if not is_asked_for(settings.get("spark.plugins")):
        return f"spark.plugins does not name {PLUGIN}"
    if (settings.get("spark.rapids.sql.mode") or "executeongpu").lower() != "executeongpu":
        return "spark.rapids.sql.mode is not executeongpu"
    jvm: Any = spark.sparkContext._jvm
    if not isinstance(jvm.kbit.gpu.GpuDecodeUdf, JavaClass):
        return "kbit-gpu is not on the driver's class path"
    return RapidsFunctions(spark)
