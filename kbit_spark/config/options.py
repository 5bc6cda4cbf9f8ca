"""Options of other programs (Spark, Kafka): dotted names to text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator


def flatten(options: Any) -> Any:
    """Return nested options as one level with dotted names, numbers and truth values as text.

    So ``spark.spark.executor.cores=2`` on the command line and ``{spark.executor.cores: 2}`` in a file mean the same,
    and the command line, which comes later, wins.
    """
    if not isinstance(options, Mapping):
        return options
    flat: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, Mapping):
            flat.update({f"{name}.{inner}": text for inner, text in flatten(value).items()})
        else:
            flat[str(name)] = _text(value)
    return flat


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


Options = Annotated[dict[str, str], BeforeValidator(flatten)]
