import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kbit_spark.events import Event
from kbit_spark.session import JARS
from kbit_spark.telemetry.listener import SparkWatch


@pytest.fixture(scope="session")
def listener_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("listener") / "stages.jsonl"


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory, listener_file: Path) -> Iterator[SparkSession]:
    """A session with the StageListener and Delta; two tries a task, so that failures are seen."""
    shared = SparkSession.getActiveSession()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2,2]")
        .appName("telemetry-tests")
        .config("spark.jars", ",".join(str(jar) for jar in sorted(JARS.glob("*.jar"))))
        .config("spark.driver.extraClassPath", str(JARS / "*"))
        .config("spark.extraListeners", "kbit.telemetry.StageListener")
        .config("spark.kbit.listener.file", str(listener_file))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    yield spark
    if shared is None:  # the session of the other tests, if there is one, has the listener as well
        spark.stop()


@pytest.fixture
def stage_events(watched: SparkSession) -> Callable[[Callable[[], object], str | None], list[Event]]:
    """Run work under a scope and return the events that Spark told of it."""

    def collect(work: Callable[[], object], scope: str | None) -> list[Event]:
        events: list[Event] = []
        watch = SparkWatch(watched, events.append)
        watched.sparkContext.setLocalProperty("kbit.scope", scope)
        try:
            work()
        finally:
            watched.sparkContext.setLocalProperty("kbit.scope", None)
            watch.stop()
        return events

    return collect


def read_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]
