"""Environments of peers that have no place in the project's own: one virtual environment each, kept under .kbit/bench.

Each has the peer and what it cannot work without, and the project's packages behind them, torch above all.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parents[1] / ".kbit/bench"
PACKAGES = {
    # the newest releases of Arrow, numpy and pandas with which Petastorm's reader runs
    "petastorm": ("petastorm==0.13.1", "pyarrow==14.0.2", "numpy==1.26.4", "pandas==2.2.3"),
    "streaming": ("mosaicml-streaming==0.13.0",),
}


def interpreter(peer: str) -> Path:
    """Return the Python of a peer's environment, which is made if it is not there."""
    packages = PACKAGES[peer]
    home = FOLDER / peer
    python, done = home / "bin/python", home / "installed.txt"
    if not done.is_file() or done.read_text().split() != list(packages):
        _make(home, python, packages)
        done.write_text("\n".join(packages))
    return python


def _make(home: Path, python: Path, packages: Sequence[str]) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
    paths = {name: sysconfig.get_path(name) for name in ("purelib", "platlib")}
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (home / "lib" / version / "site-packages/shared.pth").write_text("\n".join(dict.fromkeys(paths.values())) + "\n")
    subprocess.run([str(python), "-m", "pip", "install", "-q", *packages], check=True, stdout=sys.stderr)
