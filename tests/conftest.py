"""Fixtures live in tests/fixtures, one module per component that must really run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("kbit", deadline=None)  # a busy machine is no fault of what is tested
settings.load_profile("kbit")

_COMPONENTS = ("decode", "disk", "kafka", "registry", "sasl", "spark")
pytest_plugins = [f"tests.fixtures.{name}" for name in _COMPONENTS]

_LONGEST_FIRST = (
    "follow/test_follow.py",
    "training/test_faults.py",
    "training/test_resume.py",
    "soak/test_soak.py",
    "training/test_launchers.py",
    "ingest/test_guard.py",
    "follow/test_side_by_side.py",
    "training/test_barrier.py",
    "ingest/test_masters.py",
    "experiments/test_experiment.py",
    "ingest/test_replay.py",
    "ingest/test_signals.py",
)
"""Files of few, long tests: begun last, one of them would keep one worker busy while the others have nothing to do."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long files first."""
    places = {Path(__file__).parent / file: place for place, file in enumerate(_LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
