"""Fixtures live in tests/fixtures, one module per component that must really run."""

pytest_plugins = [
    "tests.fixtures.kafka",
    "tests.fixtures.decode",
    "tests.fixtures.registry",
    "tests.fixtures.sasl",
    "tests.fixtures.spark",
]
