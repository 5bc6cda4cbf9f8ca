from __future__ import annotations

import pytest

from tests.fixtures.decode import Decode
from tests.gpu.compare import BothEngines


@pytest.fixture(scope="session")
def both(decode: Decode, tmp_path_factory: pytest.TempPathFactory) -> BothEngines:
    return BothEngines(decode, tmp_path_factory.mktemp("kernels"))
