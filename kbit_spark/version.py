"""Which code runs: the package's version, the commit of a checkout, and a digest of the sources themselves."""

from __future__ import annotations

import hashlib
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def code_version() -> str:
    """Return e.g. ``0.1.0 commit 1a2b3c4d5e6f sources 0f1e2d3c4b5a``; the digest also tells uncommitted changes."""
    try:
        installed = version("kbit-spark")
    except PackageNotFoundError:
        installed = "unreleased"
    commit = _commit()
    return " ".join([installed, *(["commit", commit] if commit else []), "sources", _digest()])


def _commit() -> str:
    if not (PACKAGE.parent / ".git").exists():
        return ""
    command = ["git", "-C", str(PACKAGE.parent), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):  # no git here; the digest stands for it
        return ""


def _digest() -> str:
    digest = hashlib.sha256()
    for file in sorted(PACKAGE.rglob("*.py")):
        digest.update(str(file.relative_to(PACKAGE)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
