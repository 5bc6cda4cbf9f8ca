from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kbit_spark.codecs.plan import Plan

Decode = Callable[[Plan, Sequence[bytes]], list[dict[str, Any]]]


@pytest.fixture(scope="session")
def decode(spark: SparkSession) -> Decode:
    """Decode payloads in the JVM, without a Spark job."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None

    def run(plan: Plan, payloads: Sequence[bytes]) -> list[dict[str, Any]]:
        return [json.loads(line) for line in jvm.kbit.decode.Decoders.decodeToJson(json.dumps(plan), list(payloads))]

    return run
