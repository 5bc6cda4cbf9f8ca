"""Which file system a path or URI belongs to."""

from __future__ import annotations

from pathlib import Path

import pyarrow.fs as pafs
import pytest

from kbit_spark.errors import MissingRequirement, UsageError
from kbit_spark.storage import filesystem, is_uri


@pytest.mark.parametrize("path", ["s3://bucket/a", "s3a://bucket/a", "file:/a", "file:///a", "hdfs://host:1/a"])
def test_uris(path: str) -> None:
    assert is_uri(path)


@pytest.mark.parametrize("path", ["/a/b", "a/b", "a:b", "/a://b", "C:/a"])
def test_paths(path: str) -> None:
    assert not is_uri(path)


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_local_files_with_odd_names(tmp_path: Path, prefix: str) -> None:
    (tmp_path / "a b%20c").write_bytes(b"x")
    store, inner = filesystem(f"{prefix}{tmp_path}/a b%20c")
    assert store.open_input_file(inner).read() == b"x"


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_object_stores_by_hadoops_names_too(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")  # so that no region is asked for
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    store, inner = filesystem(f"{scheme}://bucket/my table/a=b%20c/f.parquet")
    assert isinstance(store, pafs.S3FileSystem)
    assert inner == "bucket/my table/a=b%20c/f.parquet"


def test_what_no_file_system_is_known_for() -> None:
    with pytest.raises(UsageError, match="no file system is known for ftp://host/a"):
        filesystem("ftp://host/a")


def test_hdfs_without_its_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_HOME", "ARROW_LIBHDFS_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(MissingRequirement, match=r"cannot use hdfs: for hdfs://host:1/a.* \(install its client"):
        filesystem("hdfs://host:1/a")
