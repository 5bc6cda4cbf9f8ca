from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from kbit_spark.session import session_given, spark_session

ROOT = Path(__file__).parents[1]
WORK = """
from kbit_spark.entry import exit_with
from kbit_spark.session import spark_session

def main():
    spark = spark_session("test", {settings!r})
    print("rows", spark.sparkContext.parallelize(range(7), 2).count())
    spark.stop()

exit_with(main)
"""
WRONG = """
from pyspark.errors import AnalysisException
from pyspark.sql import functions as sf

from kbit_spark.session import spark_session

spark = spark_session("test", {settings!r})
for where in ("ix = 1", sf.col("ix") == 1):
    try:
        spark.range(1).where(where)
    except AnalysisException as error:
        print(error.getCondition())
spark.stop()
"""
SUBMITTED = """
from kbit_spark.session import spark_session

spark = spark_session("test", {})
spark.range(1).count()
executors = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
partitions = spark.conf.get("spark.sql.shuffle.partitions")
print(spark.sparkContext.master, partitions, len(executors) - 1, "executor")  # one of them is the driver
spark.stop()
"""
SMALL = {"spark.driver.memory": "600m", "spark.executor.memory": "600m", "spark.driver.host": "127.0.0.1"}


def work(
    folder: Path, settings: dict[str, str], code: str = WORK, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run code, which counts some rows, in a session of a process of its own, in `folder`."""
    inherited = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    return subprocess.run(
        [sys.executable, "-c", code.format(settings={**SMALL, **settings})],
        env={**inherited, "PYTHONPATH": str(ROOT), **environment},
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_session_reads_and_writes_delta(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.format("delta").save(str(tmp_path / "t"))
    assert spark.read.format("delta").load(str(tmp_path / "t")).count() == 3


def test_a_running_session_is_reused_and_takes_the_users_settings(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        assert spark_session("other", {"spark.sql.shuffle.partitions": "7"}) is spark
        assert spark.conf.get("spark.sql.shuffle.partitions") == "7"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(before))


def test_on_databricks_the_session_is_left_running(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    assert session_given()
    assert spark_session("other", {}) is spark


def test_a_local_cluster_writes_nothing_beside_pyspark(tmp_path: Path) -> None:
    beside = Path(pyspark.__file__).parent / "work"
    before = set(beside.iterdir()) if beside.exists() else set()
    home = tmp_path / ".kbit/spark-home"
    home.mkdir(parents=True)
    (home / "jars").symlink_to(tmp_path / "of another pyspark")
    done = work(tmp_path, {"spark.master": "local-cluster[1,1,600]"})
    assert (done.returncode, done.stdout) == (0, "rows 7\n"), done.stderr
    assert len(list((home / "work").glob("app-*"))) == 1
    assert (set(beside.iterdir()) if beside.exists() else set()) == before


def test_what_spark_submit_was_told_wins_over_the_defaults(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(SUBMITTED)
    options = ["--master", "local-cluster[1,1,600]", "--conf", "spark.sql.shuffle.partitions=3"]
    options += [part for name, value in SMALL.items() for part in ("--conf", f"{name}={value}")]
    command = [str(ROOT / "spark-submit.sh"), *options, str(job)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "local-cluster[1,1,600] 3 1 executor\n", done.stderr


def test_errors_of_a_query_leave_the_terminal_to_those_who_explain_them(tmp_path: Path) -> None:
    done = work(tmp_path, {"spark.master": "local[1]"}, WRONG)
    assert done.stdout.splitlines() == 2 * ["UNRESOLVED_COLUMN.WITH_SUGGESTION"], done.stderr
    assert "ContextLogger" not in done.stderr
    assert "java_stacktrace" not in done.stderr
    assert "AnalysisException" not in done.stderr


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"spark.jars": ""}, "cannot find the class kbit.telemetry.StageListener\n  its jar, kbit-jvm, is missing"),
        ({"spark.extraListeners": "my.Listener"}, "cannot find the class my.Listener\n  add the jar that holds it"),
    ],
)
def test_a_class_that_no_jar_holds(tmp_path: Path, settings: dict[str, str], says: str) -> None:
    done = work(tmp_path, {"spark.master": "local[1]", **settings})
    assert done.returncode == 3, done.stderr
    assert f"error: Spark {says}" in done.stderr
    assert "Java 17" not in done.stderr


def test_no_java(tmp_path: Path) -> None:
    done = work(tmp_path, {"spark.master": "local[1]"}, JAVA_HOME=str(tmp_path))
    assert done.returncode == 3, done.stderr
    assert "error: Spark's Java process did not start\n  install Java 17 or newer" in done.stderr


def test_no_java_for_spark_submit(tmp_path: Path) -> None:
    without = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "SPARK_CONF_DIR")}
    command = [str(ROOT / "spark-submit.sh"), "jobs/stream_ingest.py"]
    for environment, says in (
        ({"JAVA_HOME": str(tmp_path)}, f"no java in {tmp_path}/bin, which JAVA_HOME names"),
        ({"JAVA_HOME": "", "PATH": path_without_java(tmp_path)}, "no java on the PATH"),
    ):
        given = {**without, "PYSPARK_PYTHON": sys.executable, **environment}
        done = subprocess.run(
            ["/bin/bash", *command], env=given, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 3
        assert done.stderr == f"error: {says}\n  install Java 17 or newer, and let JAVA_HOME or the PATH name it\n"


def path_without_java(folder: Path) -> str:
    """Return a PATH that has what the script calls before it looks for Java."""
    found = shutil.which("dirname")
    assert found is not None
    (folder / "dirname").symlink_to(found)
    return str(folder)
