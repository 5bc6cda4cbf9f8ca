"""The Databricks bundle, checked offline: it resolves, it fits Databricks' own model, and its files load."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from databricks.bundles.jobs import ClusterSpec, Job, RuntimeEngine, TaskRetryMode

from kbit_spark import ingest, rapids, train
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.config.load import load
from kbit_spark.config.train import TrainConfig

ROOT = Path(__file__).parents[1]
TARGETS = ("dev", "prod")
MODELS = {"stream_ingest": IngestConfig, "train_barrier": TrainConfig}
REFERENCE = re.compile(r"\$\{([a-z_.]+)\}")
POOL = ("minAllocFraction", "allocFraction", "maxAllocFraction")
INIT_SCRIPT = ROOT / "conf/databricks-rapids-init.sh"


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def variables(target: str) -> dict[str, Any]:
    bundle = read(ROOT / "databricks.yml")
    values = {name: spec.get("default") for name, spec in bundle["variables"].items()}
    own = bundle["targets"][target]["variables"]
    assert set(own) <= set(values)
    return {
        "bundle.name": bundle["bundle"]["name"],
        "bundle.target": target,
        "workspace.file_path": str(ROOT),
        **{f"var.{name}": value for name, value in {**values, **own}.items()},
    }


def resolve(value: Any, known: dict[str, Any]) -> Any:
    """Replace ${...} as `databricks bundle` does: a lone reference keeps its type; an unknown one is a KeyError."""
    if isinstance(value, dict):
        return {key: resolve(item, known) for key, item in value.items()}
    if isinstance(value, list):
        return [resolve(item, known) for item in value]
    if not isinstance(value, str):
        return value
    if match := REFERENCE.fullmatch(value):
        return resolve(known[match[1]], known)
    return REFERENCE.sub(lambda match: str(resolve(known[match[1]], known)), value)


def job(name: str, target: str) -> Job:
    document = read(ROOT / f"resources/{name}.job.yml")
    return Job.from_dict(resolve(document["resources"]["jobs"][name], variables(target)))


def cluster(name: str, target: str = "prod") -> ClusterSpec:
    found = job(name, target).job_clusters[0].new_cluster
    assert isinstance(found, ClusterSpec)
    return found


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=sorted(MODELS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_resource_is_included_and_known():
    bundle = read(ROOT / "databricks.yml")
    found = [path for pattern in bundle["include"] for path in ROOT.glob(pattern)]
    assert sorted(path.name for path in found) == [f"{name}.job.yml" for name in sorted(MODELS)]
    assert set(bundle["targets"]) == set(TARGETS)
    assert [t for t in TARGETS if bundle["targets"][t].get("default")] == ["dev"]


def test_a_variable_without_default_has_a_value(target: str):
    assert None not in variables(target).values()


def test_the_job_fits_databricks_own_model(name: str, target: str):
    found = job(name, target)
    assert len(found.tasks) == 1
    assert found.tasks[0].job_cluster_key == found.job_clusters[0].job_cluster_key
    assert "${" not in str(found.as_dict())


def test_an_unknown_key_is_refused():
    with pytest.raises((TypeError, ValueError)):
        Job.from_dict({"name": "x", "tasks": [], "continous": {}})  # type: ignore[typeddict-unknown-key]


def test_ingest_is_continuous_and_training_scheduled(target: str):
    stream, training = job("stream_ingest", target), job("train_barrier", target)
    assert stream.continuous is not None
    assert stream.continuous.task_retry_mode is TaskRetryMode.ON_FAILURE
    assert stream.schedule is None
    assert training.continuous is None
    assert training.schedule is not None
    fields = str(training.schedule.quartz_cron_expression).split()
    assert len(fields) in (6, 7)  # Quartz: seconds first
    assert "?" in (fields[3], fields[5])  # day of month or day of week


def test_the_cluster_is_one_that_rapids_supports(name: str, target: str):
    spec = cluster(name, target)
    assert re.fullmatch(r"17\.3\.x-gpu-ml-scala2\.13", str(spec.spark_version))
    assert spec.runtime_engine is RuntimeEngine.STANDARD
    assert spec.data_security_mode is not None
    assert str(spec.data_security_mode.value) == "SINGLE_USER"
    assert spec.autoscale is None
    assert isinstance(spec.num_workers, int)
    assert spec.spark_conf["spark.extraListeners"] == "kbit.telemetry.StageListener"


def test_only_ingest_loads_rapids_and_its_pool_is_bounded():
    stream, training = cluster("stream_ingest"), cluster("train_barrier")
    assert stream.spark_conf["spark.plugins"] == "com.nvidia.spark.SQLPlugin"
    assert stream.spark_env_vars["KBIT_INIT_RAPIDS"] == "1"
    pool = {key: float(stream.spark_conf[f"spark.rapids.memory.gpu.{key}"]) for key in POOL}
    assert 0 < pool["minAllocFraction"] <= pool["allocFraction"] <= pool["maxAllocFraction"] < 1
    assert rapids.defaults().keys() <= stream.spark_conf.keys()
    assert stream.spark_conf[rapids.ENABLED] == "false"
    assert "spark.plugins" not in training.spark_conf
    assert training.spark_env_vars["KBIT_INIT_RAPIDS"] == "0"
    assert training.spark_conf["spark.task.resource.gpu.amount"] == "1"


def test_settings_that_a_running_session_cannot_take_stand_in_the_cluster(monkeypatch: pytest.MonkeyPatch):
    wanted = ingest.settings(config("stream_ingest", "prod", monkeypatch))  # type: ignore[arg-type]
    assert wanted.items() <= cluster("stream_ingest").spark_conf.items()
    assert train.SETTINGS.items() <= cluster("train_barrier").spark_conf.items()


def test_the_files_are_there(name: str, target: str):
    found = job(name, target)
    task = found.tasks[0].spark_python_task
    assert task is not None
    assert (ROOT / "resources" / str(task.python_file)).resolve() == ROOT / f"jobs/{name}.py"
    (script,) = cluster(name, target).init_scripts
    assert script.volumes is not None
    assert Path(str(script.volumes.destination)).name == INIT_SCRIPT.name
    assert str(script.volumes.destination).startswith(f"/Volumes/{target}/")
    assert os.access(INIT_SCRIPT, os.X_OK)
    build = shlex.split(read(ROOT / "databricks.yml")["artifacts"]["kbit_spark"]["build"])
    assert (ROOT / build[-1]).is_file()


def config(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> IngestConfig | TrainConfig:
    """Load a job's configuration from its parameters, as the job does on the cluster."""
    for key, value in cluster(name, target).spark_env_vars.items():
        monkeypatch.setenv(key, str(value))
    task = job(name, target).tasks[0].spark_python_task
    assert task is not None
    flag, file, *overrides = (str(parameter).replace("{{job.run_id}}", "41") for parameter in task.parameters)
    assert flag == "--config"
    return load(MODELS[name], Path(file), overrides)


def test_the_parameters_load(name: str, target: str, monkeypatch: pytest.MonkeyPatch):
    loaded = config(name, target, monkeypatch)
    assert str(loaded.telemetry.metrics_table).startswith(f"/Volumes/{target}/")
    assert not loaded.telemetry.run_dir.startswith("/Volumes/")  # JSON lines are appended, which volumes refuse


def test_both_jobs_meet_at_one_table_and_one_row_of_numbers(target: str, monkeypatch: pytest.MonkeyPatch):
    stream = config("stream_ingest", target, monkeypatch)
    training = config("train_barrier", target, monkeypatch)
    assert isinstance(stream, IngestConfig)
    assert isinstance(training, TrainConfig)
    assert training.data.table == stream.tables.samples
    assert training.data.input in {field.name for field in stream.fields if field.tensor}
    assert training.world_size == cluster("train_barrier", target).num_workers
    assert training.checkpoint.dir.endswith("/checkpoints/41")
    for topic in stream.kafka.topics:
        assert topic.schema_file is None or Path(topic.schema_file).is_file()


def test_the_secret_is_a_reference_that_only_the_cluster_resolves(target: str, monkeypatch: pytest.MonkeyPatch):
    stream = config("stream_ingest", target, monkeypatch)
    assert isinstance(stream, IngestConfig)
    assert stream.kafka.consumer_options()["sasl.jaas.config"] == "{{secrets/kbit/kafka-jaas}}"
    assert "secrets" not in stream.model_dump_json()


def run_init(jars: Path, target: Path, rapids: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KBIT_INIT_JARS": str(jars), "KBIT_INIT_TARGET": str(target)}
    command = ["bash", str(INIT_SCRIPT)]
    return subprocess.run(
        command, env={**environment, "KBIT_INIT_RAPIDS": rapids}, capture_output=True, text=True, check=False
    )


def test_the_init_script_copies_what_the_job_needs(tmp_path: Path):
    jars, train_jars, ingest_jars = tmp_path / "jars", tmp_path / "train", tmp_path / "ingest"
    for folder in (jars, train_jars, ingest_jars):
        folder.mkdir()
    (jars / "kbit-jvm-0.1.0.jar").write_bytes(b"kbit")
    missing = run_init(jars, ingest_jars, "1")
    assert missing.returncode == 3
    assert "0 files match" in missing.stderr
    gpu = ("rapids-4-spark_2.13-26.08.1-cuda12.jar", "kbit-gpu-0.1.0.jar", "jna-5.17.0.jar")
    for name in gpu:
        (jars / name).write_bytes(b"gpu")
    assert run_init(jars, ingest_jars, "1").returncode == 0
    assert run_init(jars, train_jars, "0").returncode == 0
    assert {jar.name for jar in ingest_jars.iterdir()} == {"kbit-jvm-0.1.0.jar", *gpu}
    assert [jar.name for jar in train_jars.iterdir()] == ["kbit-jvm-0.1.0.jar"]
    (jars / "kbit-jvm-0.2.0.jar").write_bytes(b"kbit")
    assert "2 files match" in run_init(jars, train_jars, "0").stderr
    assert run_init(tmp_path / "none", train_jars, "0").returncode == 3


def test_the_wheel_brings_no_spark_of_its_own(tmp_path: Path):
    runpy.run_path(str(ROOT / "resources/build_wheel.py"))["build"](tmp_path / "dist")
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert any("omegaconf" in line for line in required)
    assert not any("spark" in line for line in required)
    assert {"kbit_spark/cli/samples/ingest.yaml", "kbit_spark/cli/samples/train.yaml"} <= set(names)
    assert "kbit_spark/telemetry/report.html.j2" in names
