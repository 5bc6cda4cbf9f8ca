"""Runs each batch on the engine that placement chooses, and once more on the CPU where the GPU fails it.

Whatever the GPU meets (too little memory, a bug of RAPIDS on a malformed payload, a lost device), the stream goes on:
nothing of a batch is committed before it is whole, so the CPU may take it from the beginning.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from kbit_spark.codecs.gpu.functions import Counted, GpuFunctions
from kbit_spark.codecs.placement import Choice, Placement, Work
from kbit_spark.codecs.resolver import PayloadDecoder
from kbit_spark.config.ingest import DecodeConfig
from kbit_spark.errors import MissingRequirement, RunError
from kbit_spark.events import Event
from kbit_spark.rapids import ENABLED
from kbit_spark.schemas.base import Engine
from kbit_spark.sources.query import root_cause

log = logging.getLogger("kbit.engines")
Result = TypeVar("Result")
Emit = Callable[[Event], None]
PLACES = 20
"""Coordinates that one event names at most."""


class MiscountError(RunError):
    """The ledger of a batch is not what was written; nothing of it is committed."""


@dataclass(frozen=True)
class Ran:
    """What became of a batch."""

    engine: Engine
    fell_back: bool = False
    counted: Counted = field(default_factory=Counted)

    def numbers(self) -> dict[str, float]:
        """Return what the batch's event tells beside the engine."""
        if self.engine == "cpu":
            return {"fell_back": 1} if self.fell_back else {}
        return {"refereed": self.counted.refereed, "disputed": self.counted.disputed}


class Engines:
    """The engines of one stream."""

    def __init__(self, config: DecodeConfig, decoder: PayloadDecoder, gpu: GpuFunctions | str, emit: Emit) -> None:
        """Take what the session has; `gpu` is why there is none, where there is none.

        Raises:
            MissingRequirement: the configuration asks for the GPU, and the session has none.
        """
        if isinstance(gpu, str) and config.placement == "gpu":
            msg = f"decode.placement is gpu, but {gpu}"
            raise MissingRequirement(
                msg, "docs/gpu.md says how to start with RAPIDS; placement auto takes what is there"
            )
        self._gpu = None if isinstance(gpu, str) else gpu
        self._config = config
        self._decoder = decoder
        self._emit = emit
        self._placement = Placement(config.placement)
        self._counted = Counted()

    def run(self, scope: str, rows: int, prepare: Callable[[Engine], Result]) -> tuple[Result, Ran]:
        """Prepare a batch for its commit, on the GPU or on the CPU.

        Args:
            scope: names the batch in events.
            rows: how many records it has at most.
            prepare: does everything but the commit; may be called again with the other engine. None: there was nothing
                to do.

        Raises:
            KbitError: what `prepare` raises on the CPU.
        """
        work = self._decoder.work(rows)
        choice = self._placement.choose(work)
        if choice.news and self._gpu is not None:
            self._tell(scope, work, choice)
        started = time.monotonic()
        if choice.engine == "gpu":
            try:
                result = prepare("gpu")
            except (Py4JJavaError, PySparkException, MiscountError) as error:
                return self._fall_back(scope, root_cause(error), prepare)
            ran = Ran("gpu", counted=self._counted)
        else:
            result, ran = prepare("cpu"), Ran("cpu")
        if result is not None:
            self._placement.ran(work, choice.engine, time.monotonic() - started)
        return result, ran

    def _fall_back(self, scope: str, reason: str, prepare: Callable[[Engine], Result]) -> tuple[Result, Ran]:
        log.warning("%s: the GPU failed, the CPU decodes it again: %s", scope, reason)
        result = prepare("cpu")
        self._placement.failed(reason)  # only now: what fails on both is no fault of the GPU
        self._emit(Event(kind="decode_fallback", scope=scope, labels={"reason": reason}))
        return result, Ran("cpu", fell_back=True)

    def _tell(self, scope: str, work: Work, choice: Choice) -> None:
        log.info("decoding on the %s: %s", choice.engine, choice.reason)
        labels = {"engine": choice.engine, "reason": choice.reason, "plan": work.plan}
        self._emit(Event(kind="decode_placement", scope=scope, numbers={"rows": work.rows}, labels=labels))

    @contextmanager
    def planning(self, spark: SparkSession, engine: Engine, *, counting: bool = False) -> Iterator[None]:
        """Let RAPIDS plan what runs inside, for the GPU alone: Delta's own small jobs are better off without it.

        Args:
            spark: the session of what runs.
            engine: the CPU: RAPIDS keeps out.
            counting: what runs is all of a batch, and what the GPU counts of it is the batch's.
        """
        if self._gpu is None:
            yield
            return
        counting = counting and engine == "gpu"
        if counting:
            self._gpu.reset()
        spark.conf.set(ENABLED, str(engine == "gpu").lower())
        try:
            yield
        finally:
            spark.conf.set(ENABLED, "false")
        if counting:
            self._counted = self._gpu.counted()

    def check(self, scope: str, batch: DataFrame, ran: Ran) -> dict[str, float]:
        """Compare the engines over a share of a batch's records; return what the batch's event tells of it.

        A difference is an event with the coordinates. A check that fails is one more thing to tell, nothing else.
        """
        share = self._config.shadow_fraction
        if self._gpu is None or not share or ran.fell_back or self._decoder.work(0).refusal:
            return {}
        counted = ran.counted
        if ran.engine == "gpu" and not counted.differences:  # the decoder itself has compared them
            return {"shadowed": counted.shadowed, "shadow_differences": 0}
        try:
            found = self._differing(batch if ran.engine == "gpu" else batch.where(sf.rand() < share))
        except (Py4JJavaError, PySparkException) as error:
            log.warning("%s: the shadow check failed: %s", scope, root_cause(error))
            return {"shadow_failed": 1}
        differences = max(len(found), counted.differences)
        if differences:
            places = ", ".join(found[:PLACES]) or "nowhere when they were decoded again"
            log.error("%s: %d records differ between the engines: %s", scope, differences, places)
            numbers = {"differences": differences}
            self._emit(Event(kind="decode_difference", scope=scope, numbers=numbers, labels={"places": places}))
        return {"shadow_differences": differences}

    def _differing(self, records: DataFrame) -> list[str]:
        with self.planning(records.sparkSession, "gpu"):
            rows = self._decoder.differing(records).collect()
        return [f"{row.topic}[{row.partition}]@{row.offset}" for row in rows]
