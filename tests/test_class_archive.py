from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import SparkConf

from kbit_spark import rapids
from kbit_spark.class_archive import executor_settings, java_options
from kbit_spark.session import DEFAULTS, DRIVER_OPTIONS, GPU_JARS, JARS, _add_rapids

COUNT = """
from kbit_spark.session import spark_session
spark = spark_session("test", {settings!r})
print("rows", spark.sparkContext.parallelize(range(7), 2).count())
spark.stop()
"""


def count_rows(folder: Path, settings: dict[str, str], **environment: str) -> None:
    """Run a session of its own that counts seven rows."""
    settings = {"spark.driver.host": "127.0.0.1", "spark.driver.memory": "600m", **settings}
    command = [sys.executable, "-c", COUNT.format(settings=settings)]
    given = {**os.environ, **environment}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, env=given)
    assert (done.returncode, done.stdout) == (0, "rows 7\n"), done.stderr


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    (tmp_path / "spark.jsa").touch()
    return tmp_path / "spark"


def test_without_an_archive_nothing_is_asked_for(tmp_path: Path) -> None:
    assert java_options(tmp_path / "spark") == ""
    assert executor_settings(tmp_path / "spark", "local-cluster[1,1,600]", "-Xint") == {}


def test_a_path_that_spark_would_split_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "my jars"
    folder.mkdir()
    (folder / "spark.jsa").touch()
    assert java_options(folder / "spark") == ""


def test_executors_of_this_machine_get_it_and_keep_their_options(jars: Path) -> None:
    given = executor_settings(jars, "local-cluster[1,1,600]", "-Xint")
    assert given == {
        "spark.executor.extraJavaOptions": f"-Xint -XX:SharedArchiveFile={jars.parent}/spark.jsa -Xlog:cds*=off"
    }
    assert executor_settings(jars, "local-cluster[1,1,600]", *given.values()) == {}


@pytest.mark.parametrize("master", ["local[2]", "spark://host:7077", "yarn", "k8s://https://host"])
def test_others_do_not_get_it(jars: Path, master: str) -> None:
    assert executor_settings(jars, master, "") == {}


def test_an_executor_maps_the_classes_that_setup_has_archived(tmp_path: Path) -> None:
    assert java_options(JARS), "setup.sh has made no archive; jars/target/spark.jsa.log says why"
    executor = {
        "spark.executor.memory": "600m",
        "spark.executor.extraJavaOptions": "-Xlog:class+load:file=executor.txt",
    }
    count_rows(tmp_path, {"spark.master": "local-cluster[1,1,600]", **executor})
    assert share_mapped(next((tmp_path / ".kbit/spark-home/work").glob("*/0/executor.txt"))) > 0.8


def share_mapped(loaded: Path) -> float:
    """Return the share of Spark's classes that came from an archive, by a JVM's log of the classes it loaded."""
    sparks = [line for line in loaded.read_text().splitlines() if " org.apache.spark." in line and "Lambda" not in line]
    assert len(sparks) > 400
    return sum("shared objects file (top)" in line for line in sparks) / len(sparks)


@pytest.mark.parametrize("gpu", [False, True])
def test_a_driver_maps_them_also_behind_the_jars_of_the_gpu(tmp_path: Path, gpu: bool) -> None:
    settings = {"spark.master": "local[1]"}
    if gpu:  # the class path of a session with RAPIDS; its plugin needs a device
        settings |= {**rapids.class_path(JARS, GPU_JARS), DRIVER_OPTIONS: java_options(GPU_JARS)}
    count_rows(tmp_path, settings, JDK_JAVA_OPTIONS=f"-Xlog:class+load:file={tmp_path / 'driver.txt'}")
    assert share_mapped(tmp_path / "driver.txt") > 0.8


def test_a_session_with_rapids_takes_the_archive_of_its_class_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gpu.jsa", "spark.jsa"):
        (tmp_path / name).touch()
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu/rapids-4-spark.jar").touch()
    monkeypatch.setenv("KBIT_GPU_JARS", str(tmp_path / "gpu"))
    conf = SparkConf(loadDefaults=False)
    conf.set("spark.plugins", rapids.PLUGIN).set(DRIVER_OPTIONS, DEFAULTS[DRIVER_OPTIONS])
    _add_rapids(conf)
    assert f"-XX:SharedArchiveFile={tmp_path}/gpu.jsa " in str(conf.get(DRIVER_OPTIONS))
    own = SparkConf(loadDefaults=False).set("spark.plugins", rapids.PLUGIN).set(DRIVER_OPTIONS, "-Xint")
    _add_rapids(own)
    assert own.get(DRIVER_OPTIONS) == "-Xint"


def test_an_archive_of_other_jars_is_passed_over_in_silence(tmp_path: Path) -> None:
    command = ["java", *java_options(JARS).split(), "-cp", str(tmp_path), "-version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "cds" not in done.stdout + done.stderr
