"""One Spark application with two executors for all tests of the barrier stage, in a process of its own."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

ROOT = Path(__file__).parents[2]
RUN = {"KBIT_TEST_RUN": secrets.token_hex(8)}
"""Marks the processes that these tests have started, however far down: others may train on the same machine."""


class Driver:
    """Talks to `tests.training.driver`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._answer()

    def train(self, config: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(config) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        msg = "the driver ended; its stderr.txt says why"
        raise AssertionError(msg)


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    folder = tmp_path_factory.mktemp("barrier")
    environment = {**os.environ, **RUN, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    with (folder / "stderr.txt").open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.training.driver", "local-cluster[2,1,1024]"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=environment,
            cwd=folder,
        )
        try:
            yield Driver(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
def alone() -> Iterator[None]:
    """Be the only rank of a process group."""
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        yield
        dist.destroy_process_group()
