"""The archives of Spark's classes that `make setup` makes of this machine's own jars and Java.

A JVM that maps it need not load, check and link some 15,000 classes: it starts with two thirds of the CPU time
(docs/decisions/0020-class-archive.md). One that cannot use it, being of another Java or having other jars, starts as
ever and says nothing. A class path that begins with RAPIDS needs an archive of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

OPTION = "-XX:SharedArchiveFile"


def java_options(jars: Path) -> str:
    """Return what a JVM of this machine is to be told, nothing where the folder `jars` has no archive beside it."""
    jars = jars.absolute()
    archive = jars.with_name(f"{jars.name}.jsa")
    fits = archive.is_file() and len(str(archive).split()) == 1  # Spark splits the options at spaces
    return f"{OPTION}={archive} -Xlog:cds*=off" if fits else ""


def executor_settings(jars: Path, master: str, given: str) -> Mapping[str, str]:
    """Return the settings that give the executors the archive where they run on this machine: under local-cluster.

    Args:
        jars: the folder of the product's jars.
        master: Spark's master.
        given: the executors' options so far; they are kept.
    """
    options = java_options(jars)
    if not options or not master.startswith("local-cluster") or OPTION in given:
        return {}
    return {"spark.executor.extraJavaOptions": f"{given} {options}".strip()}
