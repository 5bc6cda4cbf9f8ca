"""Builds the SparkSession: jars, Delta, the listener, the package on the executors; the user's settings always win.

Works under spark-submit, as plain Python and on Databricks, where session, Kafka, Avro and Delta come with the cluster.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark import __version__ as pyspark_version
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from kbit_spark import class_archive, rapids
from kbit_spark.errors import KbitError, MissingRequirement, RunError

log = logging.getLogger(__name__)

PACKAGE = Path(__file__).resolve().parent
PYSPARK = Path(pyspark.__file__).resolve().parent
JARS = Path(os.environ.get("KBIT_JARS", PACKAGE.parent / "jars/target/spark"))
GPU_JARS = PACKAGE.parent / "jars/target/gpu"
LOGGING = PACKAGE.parent / "conf/log4j2.properties"
LISTENER = "kbit.telemetry.StageListener"
DRIVER_OPTIONS = "spark.driver.extraJavaOptions"

# Spark 4.1 moved the class
_STREAMING = "org.apache.spark.sql.execution.streaming" + (
    "" if pyspark_version.startswith("4.0") else ".checkpointing"
)


def _driver_options(jars: Path) -> str:
    """Return the Java options of a driver whose class path begins with these jars, if with any."""
    options = f"-XX:+UseParallelGC -Dlog4j2.configurationFile={LOGGING} {class_archive.java_options(jars)}"
    return options.strip()


DEFAULTS: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    DRIVER_OPTIONS: _driver_options(JARS),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Binary columns are no use for data skipping, and the log state of a stream's table is small
    # (docs/decisions/0005-micro-batch-cost.md has the measurements).
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # writes and renames through FileSystem; the default goes through FileContext, which forks a shell for each file
    "spark.sql.streaming.checkpointFileManagerClass": f"{_STREAMING}.FileSystemBasedCheckpointFileManager",
    # the default, INT96, takes four more bytes a row and a dictionary
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Files of each split are open side by side, so that rows need no sort by split before the write
    "spark.sql.maxConcurrentOutputFileWriters": "8",
}


LOCAL_DISK: Mapping[str, str] = {
    # kbit.disk starts no shell commands. Set when the JVM runs, and not cached: Spark opens the disk before its jars
    # are there.
    "spark.hadoop.fs.file.impl": "kbit.disk.DiskFileSystem",
    "spark.hadoop.fs.file.impl.disable.cache": "true",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "kbit.disk.DiskFs",
}


def on_databricks() -> bool:
    """Tell whether the code runs on a Databricks cluster."""
    return "DATABRICKS_RUNTIME_VERSION" in os.environ


def session_given() -> bool:
    """Tell whether the process has a session that others made, which a job must not stop."""
    return on_databricks() or SparkSession.getActiveSession() is not None


def spark_session(app_name: str, settings: Mapping[str, str]) -> SparkSession:
    """Return the session of this process, made with `settings` over the defaults file over `DEFAULTS`.

    Raises:
        MissingRequirement: no Java, or jars are not there.
        RunError: Spark does not start.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if session_given():
        return _reuse(SparkSession.getActiveSession() or SparkSession.builder.getOrCreate(), settings)
    conf = _submitted_conf()
    for key, value in {**DEFAULTS, **_jar_settings(conf)}.items():
        conf.setIfMissing(key, value)
    for key, value in settings.items():
        conf.set(key, value)
    _add_rapids(conf)
    _add_listener(conf)
    conf.setIfMissing("spark.master", "local[*]")
    conf.set("spark.app.name", app_name)
    _add_class_archive(conf)
    if str(conf.get("spark.master")).startswith("local-cluster") and "SPARK_HOME" not in os.environ:
        os.environ["SPARK_HOME"] = str(_make_home(Path(".kbit/spark-home").absolute()))
    try:
        SparkContext._ensure_initialized(conf=conf)  # starts the JVM where none runs yet
        for key, value in LOCAL_DISK.items():
            conf.setIfMissing(key, value)
        spark = SparkSession.builder.config(conf=conf).getOrCreate()
    except Exception as error:
        raise _start_failure(error) from error
    _ship_package(spark)
    _forward_signals(spark)
    _quiet_query_contexts()
    return spark


def _submitted_conf() -> SparkConf:
    """Return the settings given to spark-submit, if that started the process.

    They stand in its JVM; a `SparkConf` made before Python has connected to it is empty, and would override them all.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        SparkContext._ensure_initialized()
    return SparkConf()


def _jar_settings(conf: SparkConf) -> dict[str, str]:
    if conf.contains("spark.jars") or conf.contains("spark.driver.extraClassPath"):
        return {}
    jars = sorted(JARS.glob("*.jar"))
    if not any(jar.name.startswith("delta-spark") for jar in jars):
        msg = f"no jars in {JARS}"
        raise MissingRequirement(msg, "run `make setup`, or set KBIT_JARS to the folder that holds them")
    return {"spark.jars": ",".join(str(jar) for jar in jars)}


def _add_rapids(conf: SparkConf) -> None:
    if not rapids.is_asked_for(conf.get("spark.plugins")):
        return
    alone = str(conf.get("spark.master", "local[*]")).startswith("local[")
    for key, value in rapids.defaults(rapids.machine_memory() if alone else None).items():
        conf.setIfMissing(key, value)
    # for a JVM that is yet to start; spark-submit.sh says the same to its own
    if (log_file := _writable(Path(".kbit/rmm.log").absolute())) is not None:
        os.environ.setdefault(rapids.RMM_LOG, str(log_file))
    if not conf.contains("spark.driver.extraClassPath"):
        for key, value in rapids.class_path(JARS, GPU_JARS).items():
            conf.setIfMissing(key, value)
        if conf.get(DRIVER_OPTIONS) == DEFAULTS[DRIVER_OPTIONS]:
            conf.set(DRIVER_OPTIONS, _driver_options(rapids.jars_folder(GPU_JARS)))


def _writable(file: Path) -> Path | None:
    """Return `file` if it can be written, its folder made; RMM would end the process where it cannot."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return file if os.access(file.parent, os.W_OK) else None


def _add_class_archive(conf: SparkConf) -> None:
    given = conf.get("spark.executor.extraJavaOptions") or ""
    for key, value in class_archive.executor_settings(JARS, str(conf.get("spark.master")), given).items():
        conf.set(key, value)


def _add_listener(conf: SparkConf) -> None:
    listeners = [name for name in (conf.get("spark.extraListeners") or "").split(",") if name]
    if LISTENER not in listeners:
        conf.set("spark.extraListeners", ",".join([*listeners, LISTENER]))


def _reuse(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    for key, value in settings.items():
        if spark.conf.isModifiable(key):
            spark.conf.set(key, value)
        elif spark.conf.get(key, None) != value and not key.startswith("spark.hadoop."):
            log.warning("%s cannot change in a running session; set it in the cluster's configuration", key)
    return spark


def _make_home(home: Path) -> Path:
    """Return a SPARK_HOME of links to pyspark: local-cluster writes its work folder into it, and nothing moves that."""
    home.mkdir(parents=True, exist_ok=True)
    for name in ("bin", "jars", "python"):
        target, fresh = PYSPARK / name, home / f".{name}.{os.getpid()}"
        if (home / name).is_symlink() and (home / name).readlink() == target:
            continue
        fresh.symlink_to(target)
        fresh.replace(home / name)  # in one step: another job may start here at the same time
    return home


def _start_failure(error: Exception) -> KbitError:
    text = " ".join(str(error).split())
    if isinstance(error, PySparkException) and error.getCondition() == "JAVA_GATEWAY_EXITED":
        return MissingRequirement(
            "Spark's Java process did not start",
            "install Java 17 or newer, and let JAVA_HOME or the PATH name it; details are above or in the log",
        )
    if missing := re.search(r"ClassNotFoundException: ([\w.$]+)", text):
        return MissingRequirement(f"Spark cannot find the class {missing[1]}", _where_from(missing[1]))
    return RunError(f"Spark does not start: {text[:300]}", "check the master and the Spark settings")


def _where_from(name: str) -> str:
    if name.startswith("kbit."):
        return "its jar, kbit-jvm, is missing in spark.jars or too old: run `make setup`, or set KBIT_JARS"
    if name == rapids.PLUGIN:
        return "spark-submit must put RAPIDS on the class path of its process: KBIT_GPU=1 ./spark-submit.sh ..."
    return "add the jar that holds it to spark.jars"


def _ship_package(spark: SparkSession) -> None:
    """Give executors on other machines this very code; an installed copy there may be older."""
    if str(spark.sparkContext.master).startswith("local["):
        return
    folder = Path(tempfile.mkdtemp(prefix="kbit-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # executors may fetch it at any time of the run
    archive = folder / "kbit_spark.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as package:
        for file in sorted(PACKAGE.rglob("*.py")):
            package.write(file, file.relative_to(PACKAGE.parent))
    spark.sparkContext.addPyFile(str(archive))


def _forward_signals(spark: SparkSession) -> None:
    """Let Python decide when to stop: under spark-submit signals reach the JVM, which would end in mid-batch."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    jvm.kbit.runtime.Signals.forwardTo(os.getpid())


def _quiet_query_contexts() -> None:
    """Keep pyspark from printing a JSON record with a Java stack trace for each error that names a piece of a query.

    The error is raised all the same: whoever catches it says what it means, and the log gets its trace.
    """
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
