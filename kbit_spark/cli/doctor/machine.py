"""What every job needs of the machine: Python and its packages, Java, jars, a GPU where one is wanted, free disk."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pynvml

from kbit_spark.cli.doctor.findings import Check, Doubt
from kbit_spark.errors import MissingRequirement
from kbit_spark.session import JARS

OLDEST_PYTHON = (3, 10)
OLDEST_JAVA = 17
VECTORS = "jdk.incubator.vector"
NEEDED_JARS = ("delta-spark", "delta-storage", "kafka-clients", "kbit-jvm", "spark-sql-kafka-0-10")
A_CLASS_OF_OURS = "kbit/decode/Decoders.class"
GB = 1_000_000_000
LOW_DISK, NO_DISK = 5 * GB, GB // 2
ANSWER_S = 20.0


def checks() -> Iterator[tuple[str, Check]]:
    """Yield the checks that need no configuration."""
    yield "python", python
    yield "spark", spark
    yield "torch", torch
    yield "java", java
    yield "jars", lambda: jars(JARS)
    yield "gpu", gpu


def python() -> str:
    """Check the interpreter's version."""
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < OLDEST_PYTHON:
        msg = f"Python {found} is too old"
        raise MissingRequirement(msg, "install Python 3.10 to 3.13 and run `make setup`")
    return f"Python {found}"


def spark() -> str:
    """Check that PySpark and Delta are of one line."""
    pyspark, delta = _installed("pyspark"), _installed("delta-spark")
    if _line(pyspark) != _line(delta):
        msg = f"PySpark {pyspark} and Delta {delta} do not belong together"
        raise MissingRequirement(msg, "install the versions in constraints.txt: `make setup`")
    return f"PySpark {pyspark}, Delta {delta}"


def torch() -> str:
    """Check that torch is installed; it is not imported, which would take seconds."""
    return f"torch {_installed('torch')}"


def java() -> str:
    """Check the Java that Spark would start, and that it has the vector module."""
    command = java_command()
    text = _answer(command, "-version")
    found = re.search(r'version "(\d+)[^"]*"', text)
    if found is None or int(found[1]) < OLDEST_JAVA:
        what = found[0] if found else " ".join(text.split())[:80] or "no answer"
        msg = f"{command} is too old: {what}"
        raise MissingRequirement(msg, "install Java 17 or newer, and let JAVA_HOME or the PATH name it")
    if not re.search(rf"^{re.escape(VECTORS)}(@|$)", _answer(command, "--list-modules"), re.MULTILINE):
        msg = f"{command} has no module {VECTORS}"
        raise MissingRequirement(msg, "install a full JDK (Debian: apt-get install openjdk-17-jdk-headless)")
    return f"Java {found[0].split(chr(34))[1]} with {VECTORS}"


def jars(folder: Path) -> str:
    """Check that the jars of the session are there, whole, and of the installed Spark and Delta."""
    names = {jar.name: jar for jar in sorted(folder.glob("*.jar"))}
    missing = [needed for needed in NEEDED_JARS if not any(name.startswith(f"{needed}") for name in names)]
    if missing:
        msg = f"{', '.join(missing)} missing in {folder}"
        raise MissingRequirement(msg, "run `make setup`, or set KBIT_JARS to the folder that holds them")
    for prefix, package in (("delta-spark", "delta-spark"), ("spark-sql-kafka-0-10", "pyspark")):
        jar = next(name for name in names if name.startswith(prefix))
        if _line(_jar_version(jar)) != _line(_installed(package)):
            msg = f"{jar} does not belong to {package} {_installed(package)}"
            raise MissingRequirement(msg, "run `make setup`, or set KBIT_JARS to the jars of that version")
    ours = next(jar for name, jar in names.items() if name.startswith("kbit-jvm"))
    if not zipfile.is_zipfile(ours) or A_CLASS_OF_OURS not in zipfile.ZipFile(ours).namelist():
        msg = f"{ours} is not whole, or too old"
        raise MissingRequirement(msg, "remove jars/target and run `make setup`")
    return f"{len(names)} jars in {folder}"


def gpu() -> str:
    """Tell the GPUs that NVIDIA's driver sees; none is no fault."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return f"none ({error}): training takes the CPU"
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        found = [
            f"{pynvml.nvmlDeviceGetName(handle)} {pynvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30:.0f} GiB"
            for handle in handles
        ]
        return f"{', '.join(found) or 'none'}, driver {pynvml.nvmlSystemGetDriverVersion()}"
    finally:
        pynvml.nvmlShutdown()


def free_disk(folder: Path) -> str:
    """Check the room where `folder` lies or would lie."""
    place = next(there for there in (folder, *folder.absolute().parents) if there.exists())
    free = shutil.disk_usage(place).free
    told = f"{free / GB:,.1f} GB free for {folder}"
    if free < NO_DISK:
        raise MissingRequirement(told, "make room: batches would fail")
    if free < LOW_DISK:
        raise Doubt(told, "make room before it is full")
    return told


def disk_here() -> str:
    """Check the room in the working folder."""
    return free_disk(Path.cwd())


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError as error:
        msg = f"the package {package} is not installed"
        raise MissingRequirement(msg, "run `make setup`, or `pip install kbit-spark`") from error


def _line(found: str) -> tuple[int, ...]:
    """Return major and minor version, within which releases fit each other."""
    return tuple(int(number) for number in re.findall(r"\d+", found)[:2])


def _jar_version(name: str) -> str:
    return name.removesuffix(".jar").rpartition("-")[2]


def java_command() -> str:
    """Return the command that Spark's launcher takes: that of JAVA_HOME, else of the PATH."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home, "bin/java"))) if home else shutil.which("java")
    if found is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH"
        msg = f"no java {where}"
        raise MissingRequirement(msg, "install Java 17 or newer, and let JAVA_HOME or the PATH name it")
    return found


def _answer(command: str, option: str) -> str:
    done = subprocess.run([command, option], capture_output=True, text=True, timeout=ANSWER_S, check=False)
    return done.stdout + done.stderr
