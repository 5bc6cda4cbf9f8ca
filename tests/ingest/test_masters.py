"""The job on executors of their own and both ways to submit it; the signals' tests run it on local."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyspark
import pytest

from kbit_spark.cli.report import make_report
from tests.fixtures.jobs import SMALL, eventually, ingest_data, json_records, ledger, start
from tests.fixtures.kafka import Kafka

pytestmark = pytest.mark.kafka
BY_SCRIPT = ("./spark-submit.sh",)
PLAIN = (str(Path(sys.executable).parent / "spark-submit"), "--properties-file", "conf/spark-defaults.conf")


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real master with one worker of one core."""
    folder, port = tmp_path_factory.mktemp("standalone"), _free_port()
    home = str(Path(pyspark.__file__).parent)
    environment = {**os.environ, "SPARK_HOME": home, "SPARK_DAEMON_MEMORY": "256m"}
    package, url = "org.apache.spark.deploy", f"spark://127.0.0.1:{port}"
    master = [f"{package}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = [f"{package}.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "-c", "1", "-m", "1g"]
    log = (folder / "log").open("w")
    processes = []
    try:
        for command in (master, [*worker, "-d", str(folder / "work"), url]):
            full = [f"{home}/bin/spark-class", *command]  # it sets what a worker needs to start executors
            processes.append(subprocess.Popen(full, stdout=log, stderr=log, cwd=folder, env=environment))
        eventually(lambda: "Registering worker" in (folder / "log").read_text())
        yield url
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(20)
        log.close()


@pytest.mark.parametrize(
    ("launcher", "master"),
    [pytest.param(BY_SCRIPT, "local-cluster[1,1,700]", id="script"), pytest.param(PLAIN, "standalone", id="plain")],
)
def test_ingest_under_a_master(
    kafka: Kafka, tmp_path: Path, master: str, launcher: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("standalone") if master == "standalone" else master
    topic = kafka.topic("master")
    kafka.produce(topic, [*json_records(10), (b"bad", b"[]")])
    data = ingest_data(tmp_path, kafka.bootstrap_servers, {topic: "json"})
    options = ("--master", url, "--conf", "spark.executor.memory=700m", *SMALL)
    job = start(tmp_path, data, options, launcher, measured=True)
    try:
        code, output = job.wait()
    finally:
        job.kill()
    assert code == 0, output
    assert [(entry.good, entry.bad) for entry in ledger(tmp_path / "samples")] == [(10, 1)]
    made = make_report(tmp_path / "report.html", list((tmp_path / "runs").iterdir()))
    assert [(record.topic, record.offset, record.count) for record in made.bad] == [(topic, 10, 1)]
    assert made.unread == ()
