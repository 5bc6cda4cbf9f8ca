"""A short soak; `make soak` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.kafka import Kafka
from tests.soak.rounds import Soak, run

pytestmark = pytest.mark.kafka
EACH_ONCE = 259
"""With this seed four kills hit an executor, the driver, its Python and everything."""


@pytest.mark.timeout(900)
def test_four_kills_lose_and_repeat_nothing(kafka: Kafka, tmp_path: Path) -> None:
    verdict = run(Soak(kills=4, seed=EACH_ONCE), kafka, tmp_path)
    assert (verdict.lost, verdict.doubled, verdict.faults) == (0, 0, ())
    assert verdict.rows > 100
