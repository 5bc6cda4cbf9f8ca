"""Load a configuration: YAML file, then dotlist overrides, checked by a frozen model.

Every fault names its place (`kafka.topics[0].format`), and an unknown key names the nearest right one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ValidationError

from kbit_spark.config.faults import models_in, other_kind, usage_error
from kbit_spark.errors import UsageError, first_line
from kbit_spark.schemas import Frozen

Model = TypeVar("Model", bound=Frozen)


def load(model: type[Model], file: Path | None, overrides: Sequence[str] = ()) -> Model:
    """Return the configuration of `file` (none: the model's defaults) with `overrides` (``a.b=value``) applied.

    A section may also be the name of a YAML file that holds it; later overrides then change what the file says.

    Raises:
        UsageError: an unreadable file, an override without ``=``, an unknown key, a value of the wrong type.
    """
    merged = _read(file)
    _include(model, merged)
    for override in overrides:
        _apply(merged, override)
        _include(model, merged)
    source = str(file) if file else "the command line"
    try:
        data = OmegaConf.to_container(merged, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        if (other := other_kind(model, merged, source)) is not None:
            raise other from error
        place = f"{error.full_key}: " if error.full_key else ""
        msg = f"{source}: {place}{_first_line(error)}"
        raise UsageError(msg, "give every ??? a value; an ${oc.env:NAME} needs NAME in the environment") from error
    return validate(model, data, source, without_file=file is None)


def validate(model: type[Model], data: Any, source: str, *, without_file: bool = False) -> Model:
    """Check plain data against `model`.

    Args:
        model: the configuration.
        data: what was given.
        source: where it was given.
        without_file: there was no file, so that this is what to say first where something is missing.

    Raises:
        UsageError: with the first faults, or the kind of configuration that the data looks like instead.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise usage_error(model, data, error, source, without_file=without_file) from error


def dump(config: BaseModel) -> str:
    """Return the configuration as YAML, for the terminal and the run's record; it holds no secret by construction."""
    return yaml.safe_dump(config.model_dump(mode="json", exclude_none=True), sort_keys=False)


def _read(file: Path | None) -> DictConfig:
    if file is None:
        return OmegaConf.create({})
    try:
        loaded = OmegaConf.load(file)
    except OSError as error:
        msg = f"cannot read the configuration {file}: {error.strerror or error}"
        raise UsageError(msg) from error
    except (yaml.YAMLError, OmegaConfBaseException, UnicodeDecodeError) as error:
        msg = f"{file} is not valid YAML: {' '.join(str(error).split())}"
        raise UsageError(msg) from error
    if not isinstance(loaded, DictConfig):
        msg = f"{file} must hold a mapping of keys, not a list"
        raise UsageError(msg)
    return loaded


def _include(model: type[BaseModel], merged: DictConfig) -> None:
    """Put the contents of YAML files in the place of sections that name them."""
    for key, field in model.model_fields.items():
        if OmegaConf.is_interpolation(merged, key) or next(models_in(field.annotation), None) is None:
            continue
        if key in merged and isinstance(value := merged[key], str) and value.endswith((".yaml", ".yml")):
            try:
                merged[key] = _read(Path(value))
            except UsageError as error:
                msg = f"{key}={value}: {error.message}"
                raise UsageError(msg, "the file of a section is looked for from the working folder") from error


def _apply(merged: DictConfig, override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key.strip():
        msg = f"{override!r} is no override"
        raise UsageError(msg, "write it as section.key=value")
    try:
        value = OmegaConf.from_dotlist([f"value={text}"])["value"]
        OmegaConf.update(merged, key.strip(), value, force_add=True)
    except (OmegaConfBaseException, yaml.YAMLError, ValueError, TypeError, IndexError) as error:
        msg = f"override {override!r}: {_first_line(error)}"
        raise UsageError(msg) from error


def _first_line(error: Exception) -> str:
    return first_line(str(error)) or type(error).__name__


def secrets_in(options: Mapping[str, str]) -> list[str]:
    """Return the names of options that would hold a secret in clear text."""
    words = ("password", "secret", "jaas", "token", "keystore.key", "key.pem")
    return [name for name in options if any(word in name.lower() for word in words)]
