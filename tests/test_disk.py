"""The local disk of Hadoop without shell commands."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession


@pytest.fixture
def hadoop(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]


def context(spark: SparkSession) -> Any:
    jvm: Any = spark.sparkContext._jvm
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    return jvm.org.apache.hadoop.fs.FileContext.getFileContext(jvm.java.net.URI("file:///"), conf)


def test_spark_uses_it(spark: SparkSession, hadoop: Any, tmp_path: Path) -> None:
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    system = hadoop.Path(str(tmp_path)).getFileSystem(conf)
    assert system.getClass().getName() == "kbit.disk.DiskFileSystem"
    assert context(spark).getDefaultFileSystem().getClass().getName() == "kbit.disk.DiskFs"


def test_a_rename_never_overwrites_unless_asked_to(spark: SparkSession, hadoop: Any, tmp_path: Path) -> None:
    jvm: Any = spark.sparkContext._jvm
    rename = jvm.org.apache.hadoop.fs.Options.Rename
    options = spark.sparkContext._gateway.new_array(rename, 1)  # type: ignore[union-attr]
    (tmp_path / "new").write_text("new")
    (tmp_path / "old").write_text("old")
    source, target = hadoop.Path(str(tmp_path / "new")), hadoop.Path(str(tmp_path / "old"))
    options[0] = rename.NONE
    with pytest.raises(Py4JJavaError, match="already exists"):
        context(spark).rename(source, target, options)
    assert (tmp_path / "old").read_text() == "old"
    options[0] = rename.OVERWRITE
    context(spark).rename(source, target, options)
    assert (tmp_path / "old").read_text() == "new"
    assert not (tmp_path / "new").exists()
    options[0] = rename.NONE
    context(spark).rename(target, source, options)
    assert (tmp_path / "new").read_text() == "new"
    assert not (tmp_path / "old").exists()


def test_permissions(spark: SparkSession, hadoop: Any, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("text")
    jvm: Any = spark.sparkContext._jvm
    system = hadoop.Path(str(tmp_path)).getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    system.setPermission(hadoop.Path(str(file)), jvm.org.apache.hadoop.fs.permission.FsPermission("640"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
