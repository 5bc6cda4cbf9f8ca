"""Paths of tables and checkpoints: a URI stays as it is, a local path becomes absolute.

Drivers and executors have other working folders, and Delta takes a path such as ``.kbit/samples`` for a table's name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from kbit_spark.config.secrets import in_address


def absolute(path: str) -> str:
    """Return a local path in full; a URI (``s3://``, ``dbfs:/``, ``abfss://``) unchanged.

    Raises:
        ValueError: the URI holds credentials.
    """
    if in_address(path):
        msg = "the address would hold a secret in clear text; credentials come from the environment or from `spark`"
        raise ValueError(msg)
    return path if ":/" in path else str(Path(path).expanduser().absolute())


DataPath = Annotated[str, AfterValidator(absolute)]
