"""Load a configuration: YAML file, then dotlist overrides, checked by a frozen model.

Every fault names its place (`kafka.topics[0].format`), and an unknown key names the nearest right one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ValidationError

from kbit_spark.config.faults import models_in, other_kind, usage_error
from kbit_spark.config.secrets import MASK, masked, masked_argument, secrets_in
from kbit_spark.errors import UsageError, first_line
from kbit_spark.schemas.base import Frozen

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
            raise other from _cause(error)
        place = f"{error.full_key}: " if error.full_key else ""
        msg = f"{source}: {place}{_reason(error, secret=_is_secret(error))}"
        hint = "give every ??? a value; an ${oc.env:NAME} needs NAME in the environment"
        raise UsageError(msg, hint) from _cause(error)
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
    """Return the configuration as YAML, for the terminal and the run's record, its secrets masked."""
    return yaml.safe_dump(masked(config.model_dump(mode="json", exclude_none=True)), sort_keys=False)


def _read(file: Path | None) -> DictConfig:
    if file is None:
        return OmegaConf.create({})
    try:
        loaded = OmegaConf.load(file)
    except OSError as error:
        msg = f"cannot read the configuration {file}: {error.strerror or error}"
        raise UsageError(msg) from error
    except (yaml.YAMLError, OmegaConfBaseException, UnicodeDecodeError) as error:
        msg = f"{file} is not valid YAML: {_reason(error, secret=_is_secret(error), whole=True)}"
        raise UsageError(msg) from _cause(error)
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
        msg = f"{masked_argument(override)!r} is no override"
        raise UsageError(msg, "write it as section.key=value")
    try:
        value = OmegaConf.from_dotlist([f"value={text}"])["value"]
        OmegaConf.update(merged, key.strip(), value, force_add=True)
    except (OmegaConfBaseException, yaml.YAMLError, ValueError, TypeError, IndexError) as error:
        shown = masked_argument(override)
        secret = shown.endswith(f"={MASK}")
        msg = f"override {shown!r}: {_reason(error, secret=secret)}"
        raise UsageError(msg) from (None if secret else error)


def _is_secret(error: Exception) -> bool:
    """Tell whether an error is about a value that is a secret; OmegaConf says where it stands."""
    return bool(secrets_in([str(getattr(error, "full_key", ""))]))


def _cause(error: Exception) -> Exception | None:
    """Return an error as the cause of another one, which the log gets; none where it may quote a secret."""
    return None if _is_secret(error) else error


def _reason(error: Exception, *, secret: bool, whole: bool = False) -> str:
    """Return what is wrong, the first line or the whole of it; of a secret only the kind, as the text may quote it."""
    text = str(error)
    if secret and not text.startswith("Environment variable"):
        return type(error).__name__
    return (" ".join(text.split()) if whole else first_line(text)) or type(error).__name__
