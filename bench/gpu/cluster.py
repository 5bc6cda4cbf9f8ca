"""A standalone Spark cluster of one host: a master, and one worker that offers the host's GPUs."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from bench import harness
from bench.harness import ROOT

START_S = 60.0


@contextmanager
def standalone(folder: Path, *, gpus: int, cores: int, memory: str, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the master's URL while both run; executors inherit `environment`. Logs go to `folder`.

    Raises:
        RuntimeError: one of them does not start.
    """
    spark = Path(pyspark.__file__).parent
    resources = [
        f"-Dspark.worker.resource.gpu.amount={gpus}",
        f"-Dspark.worker.resource.gpu.discoveryScript={ROOT / 'conf/gpu/find-gpus.sh'}",
    ]
    given = harness.environment(**{**environment, "SPARK_HOME": str(spark), "SPARK_LOCAL_IP": "127.0.0.1"})
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url, deploy = f"spark://127.0.0.1:{port}", "org.apache.spark.deploy"
    start = [str(spark / "bin/spark-class")]
    master = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = ["--cores", str(cores), "--memory", memory, "--work-dir", str(folder / "work"), "--webui-port", "0", url]
    with (
        _running([*start, f"{deploy}.master.Master", *master], given, folder / "master.log", "I have been elected"),
        _running(
            [*start, f"{deploy}.worker.Worker", *worker],
            {**given, "SPARK_WORKER_OPTS": " ".join(resources if gpus else [])},
            folder / "worker.log",
            "Successfully registered with master",
        ),
    ):
        yield url


@contextmanager
def _running(command: Sequence[str], environment: Mapping[str, str], log: Path, ready: str) -> Iterator[None]:
    """Run a process from when its log says that it is `ready`; end it."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    try:
        deadline = time.monotonic() + START_S
        while ready not in log.read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() > deadline:
                msg = f"{' '.join(command)} did not start:\n{log.read_text(errors='replace')[-2_000:]}"
                raise RuntimeError(msg)
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait()
