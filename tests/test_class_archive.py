from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kbit_spark.class_archive import executor_settings, java_options
from kbit_spark.session import JARS

COUNT = """
from kbit_spark.session import spark_session
spark = spark_session("test", {"spark.master": "local-cluster[1,1,600]", "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "600m", "spark.executor.memory": "600m",
    "spark.executor.extraJavaOptions": "-Xlog:class+load:file=executor.txt"})
print("rows", spark.sparkContext.parallelize(range(7), 2).count())
spark.stop()
"""


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
    done = subprocess.run([sys.executable, "-c", COUNT], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "rows 7\n"), done.stderr
    loaded = next((tmp_path / ".kbit/spark-home/work").glob("*/0/executor.txt")).read_text().splitlines()
    sparks = [line for line in loaded if " org.apache.spark." in line and "Lambda" not in line]
    mapped = [line for line in sparks if "shared objects file (top)" in line]
    assert len(mapped) > 0.8 * len(sparks) > 400


def test_an_archive_of_other_jars_is_passed_over_in_silence(tmp_path: Path) -> None:
    command = ["java", *java_options(JARS).split(), "-cp", str(tmp_path), "-version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "cds" not in done.stdout + done.stderr
