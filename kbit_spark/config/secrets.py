"""Keeps secrets out of what is written down: tells them by the names of options, and puts a mask in their place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from kbit_spark.config.options import flatten

MASK = "***"

_FREE_FORM = ("spark", "options")
"""Sections whose keys are other programs' options, and whose values may be command lines."""

_CERTAIN = r"""
    password | passwd | passphrase | secret | jaas | user[._-]?info | connection[._-]?string
    | keystore\.key | key\.pem | oauthbearer\.config | [._-]sas[._-] | access[._-]?key
    | (?:account|api|encryption|private|shared)[._-]?key(?![a-z]|[._-](?:file|id)$)
"""
_SECRET = re.compile(rf"{_CERTAIN} | credential$ | token(?!\.endpoint\.url$)", re.IGNORECASE | re.VERBOSE)
_ASSIGNED = re.compile(rf"(?:{_CERTAIN} | credential(?!s) | token)[\w.-]*['\"]?\s*[=:]", re.IGNORECASE | re.VERBOSE)
"""A secret's name with a value behind it, as in ``-Djavax.net.ssl.trustStorePassword=...``."""

_OF_MODEL = re.compile(
    rf"{_CERTAIN} | credential$ | (?:^|\.)token$ | (?:access|api|auth|bearer|hf|hub|refresh|session)[._-]?token",
    re.IGNORECASE | re.VERBOSE,
)
"""The same for models, which have other tokens as well: ``pad_token``."""

# abfss://container@account has no secret before its @
_IN_ADDRESS = re.compile(r"(?<=://)[^/\s:@]*:[^/\s]*@|(?<=http://)[^/\s]*@|(?<=https://)[^/\s]*@", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{oc\.env:\w+\}")


def secrets_in(options: Iterable[str]) -> list[str]:
    """Return those names of options whose values would be secrets in clear text."""
    return [name for name in options if _SECRET.search(name)]


def secrets_in_model(options: Mapping[str, Any]) -> list[str]:
    """Return the dotted names of a model's options that would hold a secret in clear text; numbers are none."""
    texts = [(name, value) for name, value in _leaves(options) if isinstance(value, str)]
    return [name for name, text in texts if _OF_MODEL.search(name) or in_address(text)]


def in_address(text: str) -> bool:
    """Tell whether a URL in a text holds credentials."""
    return _IN_ADDRESS.search(text) is not None


def masked(data: Any, name: str = "") -> Any:
    """Return plain data with `MASK` in the place of every text that is, or holds, a secret.

    Args:
        data: mappings, lists and single values.
        name: the dotted key at which they stand. Keys that end in ``_from_env`` hold names of variables, no secrets.
    """
    if isinstance(data, Mapping):
        return {key: masked(value, f"{name}.{key}" if name else str(key)) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [masked(value, name) for value in data]
    return _masked_text(data, name) if isinstance(data, str) else data


def masked_argument(argument: str) -> str:
    """Return an argument of a command line, with `MASK` for the value where it is, or holds, a secret.

    ``section.key=${oc.env:NAME}`` stays: it only names the variable.
    """
    key, separator, text = argument.partition("=")
    if not separator or _VARIABLE.fullmatch(text):
        return argument
    name = re.sub(r"[\[\]]+", ".", key).strip(".")  # section[key] is section.key
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return f"{key}={MASK}" if _is_free(name) or _SECRET.search(name) else argument
    if isinstance(value, Mapping | list):
        plain = flatten(value) if isinstance(value, Mapping) else [flatten(item) for item in value]
        return argument if masked(plain, name) == plain else f"{key}={MASK}"
    return f"{key}={_masked_text(text, name)}"


def _leaves(data: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _leaves(value, f"{name}.{key}" if name else str(key))
    elif isinstance(data, list | tuple):
        for value in data:
            yield from _leaves(value, name)
    else:
        yield name, data


def _masked_text(text: str, name: str) -> str:
    parts = name.split(".")
    if not text or any(part.endswith("_from_env") for part in parts):
        return text
    secret = _OF_MODEL if "model_options" in parts else _SECRET
    if secret.search(name) or (_is_free(name) and _ASSIGNED.search(text)):
        return MASK
    return _IN_ADDRESS.sub(f"{MASK}@", text)


def _is_free(name: str) -> bool:
    """Tell whether `name` stands in a section of other programs' options, or is an option of a program itself."""
    return name.startswith("-") or any(part in _FREE_FORM for part in name.split("."))
