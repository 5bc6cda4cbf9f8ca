from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kbit_spark.cli.doctor import machine
from kbit_spark.cli.doctor.findings import Doubt, Finding, examine
from kbit_spark.errors import MissingRequirement, RunError
from kbit_spark.session import JARS


def test_this_machine_is_well() -> None:
    findings = examine(machine.checks())
    assert {finding.level for finding in findings} == {"ok"}, findings
    assert [finding.check for finding in findings] == ["python", "spark", "torch", "java", "jars", "gpu"]


def fake_java(folder: Path, version: str, modules: str) -> None:
    command = folder / "bin/java"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\ncase $1 in -version) echo '{version}' >&2;; *) echo \"{modules}\";; esac\n")
    command.chmod(0o755)


@pytest.mark.parametrize(
    ("version", "modules", "says"),
    [
        ('openjdk version "11.0.2" 2019', "jdk.incubator.vector@11", "too old"),
        ('java version "1.8.0_401"', "", "too old"),
        ("Error: could not find libjava.so", "", "libjava"),
        ('openjdk version "21" 2023', "java.base@21", "no module jdk.incubator.vector"),
    ],
)
def test_a_java_that_will_not_do(
    version: str, modules: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path, version, modules)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingRequirement, match=says) as caught:
        machine.java()
    assert "install" in caught.value.hint


def test_a_newer_java_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, 'openjdk version "21" 2023-09-19', "jdk.incubator.vector@21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert machine.java() == "Java 21 with jdk.incubator.vector"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(MissingRequirement, match="no java in JAVA_HOME"):
        machine.java()


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    for jar in JARS.glob("*.jar"):
        (tmp_path / jar.name).symlink_to(jar.resolve())
    return tmp_path


def _missing(folder: Path) -> None:
    next(folder.glob("delta-storage*")).unlink()


def _older(folder: Path) -> None:
    jar = next(folder.glob("spark-sql-kafka*"))
    jar.rename(folder / "spark-sql-kafka-0-10_2.13-3.5.1.jar")


def _cut(folder: Path) -> None:
    jar = next(folder.glob("kbit-jvm*"))
    data = jar.read_bytes()[:1_000]
    jar.unlink()
    jar.write_bytes(data)


def _without_our_class(folder: Path) -> None:
    jar = next(folder.glob("kbit-jvm*"))
    jar.unlink()
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("README", "empty")


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (_missing, "delta-storage missing"),
        (_older, "does not belong to pyspark"),
        (_cut, "not whole"),
        (_without_our_class, "not whole, or too old"),
    ],
)
def test_jars_that_will_not_do(harm: Callable[[Path], None], says: str, jars: Path) -> None:
    assert str(jars) in machine.jars(jars)
    harm(jars)
    with pytest.raises(MissingRequirement, match=says) as caught:
        machine.jars(jars)
    assert "make setup" in caught.value.hint


@pytest.mark.parametrize(("free", "error"), [(4 * machine.GB, Doubt), (machine.GB // 4, MissingRequirement)])
def test_little_room(free: int, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(free, 0, free))
    with pytest.raises(error, match="GB free"):
        machine.free_disk(tmp_path / "not/yet/there")


def test_every_check_is_run_and_its_line_holds_the_way_out() -> None:
    def fails() -> str:
        raise RunError("no\nbroker", "start one")

    def doubts() -> str:
        raise Doubt("hm", "look")

    def breaks() -> str:
        return str(1 // len(os.devnull[:0]))

    found = examine([("a", fails), ("b", doubts), ("c", breaks), ("d", lambda: "fine")])
    assert [finding.level for finding in found] == ["fail", "warn", "fail", "ok"]
    assert found[0].line() == "FAIL  a                no broker (start one)"
    assert "ZeroDivisionError" in found[2].message
    assert found[3] == Finding("d", "ok", "fine")
