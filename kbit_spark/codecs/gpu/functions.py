"""The decoders of kbit-gpu as functions of columns: RAPIDS runs them by column, with the CPU decoder's own answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from py4j.java_gateway import JavaClass, JavaObject, get_field
from pyspark.sql import Column, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn

from kbit_spark.codecs.decoder import DecodeFunction
from kbit_spark.codecs.gpu.program import Program, program_for
from kbit_spark.codecs.plan import Plan
from kbit_spark.rapids import PLUGIN, is_asked_for
from kbit_spark.schemas.fields import FieldSpec


@dataclass(frozen=True)
class Counted:
    """Rows of a batch that both decoders have seen."""

    refereed: int = 0
    """Left to the CPU decoder by the GPU: bad ones, and those that it cannot vouch for."""

    disputed: int = 0
    """Refereed ones for which the GPU named another error, or another place."""

    shadowed: int = 0
    """Decoded by the GPU, and by the CPU as a check."""

    differences: int = 0
    """Shadowed ones with another value."""


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

    def counted(self) -> Counted:
        """Return what was counted since the last `reset`."""


class Decode(Protocol):
    """A decoder as a function of columns."""

    def __call__(self, value: Column) -> Column:
        """Return the decoded payload of `value`."""


class RapidsFunctions:
    """The functions of kbit-gpu; they share their counters.

    Args:
        spark: the session.
        shadow_fraction: share of the rows that the GPU decodes and the CPU as well.
    """

    def __init__(self, spark: SparkSession, shadow_fraction: float = 0.0) -> None:
        self._spark = spark
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        self._counters = jvm.kbit.gpu.Counters.registered(spark.sparkContext._jsc.sc())
        self._shadow_fraction = shadow_fraction

    def program(self, plan: Plan) -> Program:
        """See `GpuFunctions`."""
        return program_for(plan)

    def decoder(self, plan: Plan, program: Program, fields: Sequence[FieldSpec], unresolved: JavaObject) -> Decode:
        """See `GpuFunctions`."""
        more = (program.to_json(), unresolved, self._counters, self._shadow_fraction)
        return _GpuDecodeFunction(self._spark, plan, fields, more)

    def schema_id(self, value: Column) -> Column:
        """See `GpuFunctions`; RAPIDS has no substring of binary."""
        return ClassicColumn(self._jvm.kbit.gpu.SchemaIdUdf.of().apply(self._jvm.PythonUtils.toSeq([value._jc])))

    def reset(self) -> None:
        """See `GpuFunctions`."""
        self._counters.reset()

    def counted(self) -> Counted:
        """See `GpuFunctions`."""
        refereed, disputed, shadowed = (
            int(get_field(self._counters, name).sum()) for name in ("refereed", "disputes", "shadowed")
        )
        return Counted(refereed, disputed, shadowed, int(get_field(self._counters, "differences").value().size()))


class _GpuDecodeFunction(DecodeFunction):
    def __init__(self, spark: SparkSession, plan: Plan, fields: Sequence[FieldSpec], more: Sequence[Any]) -> None:
        self._more = more
        super().__init__(spark, plan, fields, more[1])

    def _make(self, plan: str, unresolved: JavaObject, result: JavaObject) -> Any:
        return self._jvm.kbit.gpu.GpuDecodeUdf.of(plan, *self._more, result)


def rapids_functions(spark: SparkSession, shadow_fraction: float = 0.0) -> RapidsFunctions | str:
    """Return the functions of this session (see `RapidsFunctions`), or why the GPU decodes nothing in it."""
    settings = spark.sparkContext.getConf()
    if not is_asked_for(settings.get("spark.plugins")):
        return f"spark.plugins does not name {PLUGIN}"
    if (settings.get("spark.rapids.sql.mode") or "executeongpu").lower() != "executeongpu":
        return "spark.rapids.sql.mode is not executeongpu"
    jvm: Any = spark.sparkContext._jvm
    if not isinstance(jvm.kbit.gpu.GpuDecodeUdf, JavaClass):
        return "kbit-gpu is not on the driver's class path"
    return RapidsFunctions(spark, shadow_fraction)
