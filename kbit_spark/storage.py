"""Files on local disks, HDFS and object stores, by path or URI."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.fs as pafs

from kbit_spark.errors import MissingRequirement, UsageError

_HADOOP_NAMES = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's names of schemes that Arrow knows by another one."""


def is_uri(path: str) -> bool:
    """Tell a URI (``s3://``, ``file:/``) from a local path."""
    return re.match(r"[a-zA-Z][a-zA-Z0-9+.-]+:/", path) is not None


def filesystem(path: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a path or URI, and the path inside it. Credentials come from the environment.

    A URI is taken as it reads: ``%20`` in it stands for itself.

    Raises:
        UsageError: no file system is known for the URI.
        MissingRequirement: the file system's own libraries are not there (HDFS needs libhdfs).
    """
    if not is_uri(path):
        return pafs.LocalFileSystem(), path
    scheme, _, rest = path.partition(":")
    scheme = _HADOOP_NAMES.get(scheme, scheme)
    if scheme == "file":
        return pafs.LocalFileSystem(), "/" + rest.lstrip("/")
    host, _, inner = rest.lstrip("/").partition("/")
    try:
        found, base = pafs.FileSystem.from_uri(f"{scheme}://{host}/")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        msg = f"no file system is known for {path}"
        raise UsageError(msg, "known: local paths, file:, s3:, s3a:, gs:, abfs:, abfss:, hdfs:") from error
    except OSError as error:
        msg = f"cannot use {scheme}: for {path}: {' '.join(str(error).split())}"
        raise MissingRequirement(msg, "install its client libraries (HDFS: libhdfs, HADOOP_HOME, CLASSPATH)") from error
    return found, f"{base.rstrip('/')}/{inner}"
