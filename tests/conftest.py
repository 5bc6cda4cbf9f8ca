"""Fixtures live in tests/fixtures, one module per component that must really run."""

_COMPONENTS = ("decode", "disk", "kafka", "registry", "sasl", "spark")
pytest_plugins = [f"tests.fixtures.{name}" for name in _COMPONENTS]
