"""Builds the SparkSession: jars, Delta, the listener; settings that the user gave always win."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkConf
from pyspark.sql import SparkSession

from kbit_spark.errors import MissingRequirement

log = logging.getLogger(__name__)

PACKAGE = Path(__file__).resolve().parent
JARS = PACKAGE.parent / "jars" / "target" / "spark"
LISTENER = "kbit.telemetry.StageListener"

REQUIRED = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

# Each takes time off every micro-batch; docs/decisions/0005-micro-batch-cost.md has the figures.
FAST_BATCHES = {
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}


def spark_session(app_name: str, settings: Mapping[str, str]) -> SparkSession:
    """Return the session of this process; one that exists already (Databricks, tests) is reused.

    Order of precedence: `settings`, spark-submit's own (``--conf``, the defaults file), the defaults in this module.

    Raises:
        MissingRequirement: the jars were not built, or Java does not start.
    """
    existing = SparkSession.getActiveSession()
    if existing is not None or "DATABRICKS_RUNTIME_VERSION" in os.environ:
        return _reuse(existing or SparkSession.builder.getOrCreate(), settings)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    given = SparkConf()  # under spark-submit: everything from the command line and the defaults file
    builder = SparkSession.builder.appName(app_name)
    for key, value in {**_defaults(given), **settings}.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        msg = f"Spark does not start: {_cause(error)}"
        raise MissingRequirement(msg, "Java 17 and the jars (make setup) must be there") from error
    _ship_package(spark)
    _forward_signals(spark)
    return spark


def _reuse(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    for key, value in settings.items():
        if spark.conf.isModifiable(key):
            spark.conf.set(key, value)
        else:
            log.warning("%s cannot change in a running session", key)
    return spark


def _defaults(given: SparkConf) -> dict[str, str]:
    wanted = {**REQUIRED, **FAST_BATCHES}
    if not given.contains("spark.master"):
        wanted["spark.master"] = "local[*]"
    jars = _jars(given)
    wanted |= jars
    if _holds_listener(jars.get("spark.jars") or given.get("spark.jars", "")):
        wanted["spark.extraListeners"] = LISTENER
    return {key: value for key, value in wanted.items() if not given.contains(key)}


def _jars(given: SparkConf) -> dict[str, str]:
    if given.contains("spark.jars") or given.contains("spark.jars.packages"):
        return {}
    found = sorted(JARS.glob("*.jar"))
    if not found:
        msg = f"no jars at {JARS}"
        raise MissingRequirement(msg, "run `make setup`")
    return {"spark.jars": ",".join(map(str, found))}


def _holds_listener(jars: str | None) -> bool:
    """Whether Spark would find the listener: an unknown class in extraListeners keeps the context from starting."""
    name = LISTENER.replace(".", "/") + ".class"
    for jar in (jars or "").split(","):
        path = Path(jar.removeprefix("file://").removeprefix("file:"))
        if path.name.startswith("kbit-jvm") and path.is_file():
            with zipfile.ZipFile(path) as archive:
                return name in archive.namelist()
    return False


def _ship_package(spark: SparkSession) -> None:
    """Send this package to executors of other processes; threads of this one have it."""
    context = spark.sparkContext
    if context.master.startswith("local") and not context.master.startswith("local-cluster"):
        return
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "kbit_spark.zip"
        with zipfile.ZipFile(target, "w") as archive:
            for file in sorted(PACKAGE.rglob("*.py")):
                archive.write(file, file.relative_to(PACKAGE.parent))
        context.addPyFile(str(target))  # copies it, so the folder may go


def _forward_signals(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    try:
        jvm.kbit.runtime.Signals.forwardTo(os.getpid())
    except TypeError:  # the user's own jars, without ours
        log.warning("kbit-jvm is not among the jars: SIGTERM will not finish the running batch")


def _cause(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "xception" in line or "rror" in line), lines[0] if lines else repr(error))
