"""Build dist/*.whl for a Databricks cluster: pyspark and delta come with it, and a second copy would break it."""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WITH_THE_CLUSTER = re.compile(r'^    "(pyspark|delta-spark)\b.*\n', re.MULTILINE)


def build(target: Path) -> None:
    """Write the only wheel of folder `target`; it asks for everything but what comes with the cluster."""
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(ROOT / "kbit_spark", copy / "kbit_spark", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "README.md", copy)
        project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        (copy / "pyproject.toml").write_text(WITH_THE_CLUSTER.sub("", project), encoding="utf-8")
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(target), str(copy)]
        subprocess.run(pip, check=True)


if __name__ == "__main__":
    build(ROOT / "dist")
