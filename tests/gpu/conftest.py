from __future__ import annotations

from collections.abc import Iterator

import pytest

from kbit_spark.cli.decode.jvm import decoders
from tests.gpu.compare import BothEngines


@pytest.fixture(scope="session")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BothEngines]:
    """Both engines, the CPU's in a JVM without Spark; a kernel is compiled once a session."""
    with decoders() as decode:
        yield BothEngines(decode, tmp_path_factory.mktemp("kernels"))
