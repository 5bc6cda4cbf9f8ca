import subprocess
import sys

from kbit_spark.telemetry.resources import Resources


def test_a_sample_is_of_this_process() -> None:
    resources = Resources()
    sum(i * i for i in range(2_000_000))
    numbers = resources.sample()
    assert numbers["cpu_percent"] > 0
    assert numbers["rss_bytes"] > 10_000_000


def test_it_imports_neither_pyspark_nor_torch() -> None:
    code = "import sys, kbit_spark.telemetry.resources; sys.exit(bool({'pyspark', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
