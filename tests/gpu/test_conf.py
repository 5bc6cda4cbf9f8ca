"""What starts a session with RAPIDS: files for clusters, and the class path; no GPU and no JVM is needed for that."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import psutil
import pytest

from kbit_spark import rapids
from kbit_spark.errors import MissingRequirement

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "conf/gpu").glob("*.conf"))


def read(file: Path) -> dict[str, str]:
    lines = (line.strip() for line in file.read_text().splitlines())
    pairs = (line.split(None, 1) for line in lines if line and not line.startswith("#"))
    return {pair[0]: pair[1] for pair in pairs}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_cluster_starts_rapids_with_one_gpu_an_executor(file: Path) -> None:
    settings = read(file)
    assert rapids.is_asked_for(settings["spark.plugins"])
    assert settings["spark.executor.resource.gpu.amount"] == "1"
    at_a_time = 1 / float(settings["spark.task.resource.gpu.amount"])
    assert int(settings["spark.executor.cores"]) == at_a_time  # every core has a share of the GPU


def test_the_pinned_memory_is_a_share_of_the_machines() -> None:
    assert [rapids.pinned_pool_gib(gib << 30) for gib in (0, 8, 16, 32, 64, 128, 2_048)] == [2, 2, 2, 2, 4, 8, 8]
    assert rapids.defaults()[rapids.PINNED_POOL] == "2g"
    assert 1 << 30 < rapids.machine_memory() <= psutil.virtual_memory().total


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_delta_stays_with_sparks_own_class_loader(file: Path) -> None:
    settings = read(file)
    for side in ("driver", "executor"):
        path = settings[f"spark.{side}.extraClassPath"].split(":")
        assert any("kbit-jvm" in part for part in path)
        assert not any(part.endswith(("spark/*", "spark/*.jar")) or part == "*" for part in path)
    assert "/spark/*.jar" in settings["spark.jars"]


def test_there_is_a_file_for_each_kind_of_cluster() -> None:
    assert [file.stem for file in FILES] == ["kubernetes", "standalone", "yarn"]


def test_spark_is_told_the_gpus(tmp_path: Path) -> None:
    fake = tmp_path / "nvidia-smi"
    fake.write_text("#!/bin/sh\nprintf '0\\n1\\n'\n")
    fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    told = subprocess.run([ROOT / "conf/gpu/find-gpus.sh"], env=environment, capture_output=True, check=True).stdout
    assert json.loads(told) == {"name": "gpu", "addresses": ["0", "1"]}


def test_the_class_path_holds_rapids_and_what_kbit_gpu_uses_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KBIT_GPU_JARS", raising=False)
    spark, gpu = tmp_path / "spark", tmp_path / "gpu"
    for folder, names in ((spark, ("kbit-jvm-0.1.0", "delta-spark")), (gpu, ("rapids-4-spark_2.13-x", "kbit-gpu"))):
        folder.mkdir()
        for name in names:
            (folder / f"{name}.jar").touch()
    path = rapids.class_path(spark, gpu)["spark.driver.extraClassPath"]
    assert [Path(part).stem for part in path.split(":")] == ["kbit-gpu", "rapids-4-spark_2.13-x", "kbit-jvm-0.1.0"]
    with pytest.raises(MissingRequirement, match="there is no jar of it in"):
        rapids.class_path(spark, spark)


def test_spark_submit_says_what_is_missing(tmp_path: Path) -> None:
    environment = {**os.environ, "KBIT_GPU": "1", "KBIT_GPU_JARS": str(tmp_path), "SPARK_HOME": str(tmp_path)}
    done = subprocess.run(
        [ROOT / "spark-submit.sh", "x.py"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert f"error: no jar of RAPIDS in {tmp_path}\n  run `scripts/setup.sh gpu`" in done.stderr


@pytest.mark.parametrize("gpu", ["0", "1"])
def test_spark_submit_names_the_archive_of_its_class_path(tmp_path: Path, gpu: str) -> None:
    for file in ("gpu.jsa", "spark.jsa", "gpu/rapids-4-spark.jar", "spark/kbit-jvm.jar", "home/bin/spark-submit"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        (tmp_path / file).chmod(0o755)
    folders = {"KBIT_GPU_JARS": f"{tmp_path}/gpu", "KBIT_JARS": f"{tmp_path}/spark", "SPARK_HOME": f"{tmp_path}/home"}
    environment = {**os.environ, **folders, "KBIT_GPU": gpu}
    done = subprocess.run(
        [ROOT / "spark-submit.sh", "x.py"], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    (options,) = (line for line in done.stdout.splitlines() if "driver.extraJavaOptions" in line)
    assert f"-XX:SharedArchiveFile={tmp_path}/{'gpu' if gpu == '1' else 'spark'}.jsa -Xlog:cds*=off" in options
