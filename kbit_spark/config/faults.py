"""Says what is wrong with a configuration, for a person: a few faults, each with its place, the likely cause first."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from kbit_spark.errors import UsageError

MOST = 5
"""Faults that are told of one configuration."""

_SURPLUS = 4
"""By how much another kind must fit better to be named: two keys that it knows and this one does not."""


_SHOWN = 40
"""Characters of a value that are shown."""

_NEVER_SHOWN = ("options", "spark", "model_options", "url")
"""Keys whose values may hold a secret: options of other programs, and addresses."""


@dataclass(frozen=True)
class Kind:
    """A kind of configuration."""

    name: str
    """With its article, e.g. ``an ingest``."""

    sample: str
    """What `kbit config init` calls it."""

    job: str
    """Who takes it."""

    model: type[BaseModel]

    def fit(self, keys: Collection[str]) -> int:
        """Return how well it fits: the keys that it knows less those that it does not."""
        known = sum(key in self.model.model_fields for key in keys)
        return 2 * known - len(keys)


def usage_error(
    model: type[BaseModel], data: Any, error: ValidationError, source: str, *, without_file: bool = False
) -> UsageError:
    """Return what to tell about plain data that is no `model`.

    Args:
        model: what was wanted.
        data: what was given.
        error: what is wrong with it.
        source: where it was given.
        without_file: there was no file.
    """
    if (other := other_kind(model, data, source)) is not None:
        return other
    if without_file and any(fault["type"] == "missing" for fault in error.errors()):
        source = f"no --config FILE given, and {source} alone is not enough"
    return UsageError(f"{source}: {'; '.join(_explain(model, error))}", _sample(_kind_of(model)))


def other_kind(model: type[BaseModel], data: Any, source: str) -> UsageError | None:
    """Return what to tell where the keys of `data` are clearly those of another kind of configuration, else None."""
    wanted = _kind_of(model)
    if wanted is None or not isinstance(data, Mapping):
        return None
    best = max(_kinds(), key=lambda kind: kind.fit(data))
    if best.fit(data) - wanted.fit(data) < _SURPLUS:
        return None
    msg = f"{source} looks like {best.name} configuration, but {wanted.name} one is wanted here"
    return UsageError(msg, f"{_sample(wanted)}; {best.job} takes {best.name} one")


def _sample(kind: Kind | None) -> str:
    return f"`kbit config init{f' {kind.sample}' if kind else ''}` writes a commented sample"


def _kind_of(model: type[BaseModel]) -> Kind | None:
    return next((kind for kind in _kinds() if kind.model is model), None)


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that a field's annotation names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def _kinds() -> tuple[Kind, ...]:
    # here, because these modules load their configurations themselves
    from kbit_spark.config.experiment import ExperimentConfig
    from kbit_spark.config.ingest import IngestConfig
    from kbit_spark.config.train import TrainConfig

    return (
        Kind("an ingest", "ingest", "jobs/stream_ingest.py", IngestConfig),
        Kind("a training", "train", "jobs/train_barrier.py", TrainConfig),
        Kind("an experiment", "experiment", "jobs/experiment.py", ExperimentConfig),
    )


def _explain(model: type[BaseModel], error: ValidationError) -> list[str]:
    """Return a line for each of the first faults, and how many more there are."""
    # a key that is missing may only be misspelt
    faults = sorted(_by_field(model, error), key=lambda fault: fault["type"] != "extra_forbidden")
    told: set[tuple[int | str, ...]] = set()
    lines = []
    for fault in faults[:MOST]:
        section = fault["loc"][:-1]
        line, listed = _line(model, fault, list_known=section not in told)
        lines.append(line)
        told |= {section} if listed else set()
    return lines + ([f"and {len(faults) - MOST} more"] if len(faults) > MOST else [])


def _by_field(model: type[BaseModel], error: ValidationError) -> list[ErrorDetails]:
    """Return the faults, those of a field that may be one thing or another as one."""
    found: dict[tuple[int | str, ...], ErrorDetails] = {}
    for fault in error.errors():
        loc = fault["loc"]
        if len(loc) < 2 or not _is_choice(model, loc[:-1]):
            found[loc] = fault
        elif (first := found.get(loc[:-1])) is None:
            found[loc[:-1]] = {**fault, "loc": loc[:-1]}
        else:  # pydantic tells each of the choices as if it were a field
            first["msg"] += f" or {fault['msg'].removeprefix('Input should be ').partition(', ')[0]}"
    return list(found.values())


def _is_choice(model: type[BaseModel], loc: Sequence[int | str]) -> bool:
    """Tell whether the field at `loc` takes values of several types, beside None."""
    field = _model_at(model, loc[:-1]).model_fields.get(str(loc[-1]))
    if field is None or get_origin(field.annotation) not in (Union, UnionType):
        return False
    return len(set(get_args(field.annotation)) - {NoneType}) > 1


def _line(model: type[BaseModel], fault: ErrorDetails, *, list_known: bool) -> tuple[str, bool]:
    """Return a fault in words, and whether they list the keys that its section knows."""
    loc = fault["loc"]
    place = _place(loc)
    if fault["type"] != "extra_forbidden":
        reason = fault["msg"].removeprefix("Value error, ") + _given(loc, fault["type"], fault["input"])
        return (f"{place}: {reason}" if place else reason), False
    known = list(_model_at(model, loc[:-1]).model_fields)
    if nearest := difflib.get_close_matches(str(loc[-1]), known, n=1):
        return f"unknown key {place}; did you mean {nearest[0]}?", False
    return f"unknown key {place}" + (f"; known: {', '.join(known)}" if list_known else ""), list_known


def _given(loc: Sequence[int | str], kind: str, value: Any) -> str:
    """Return what to append to a fault for the value that was given; "" where the text has it, or it may be secret."""
    if kind in ("missing", "value_error") or kind.startswith("too_") or _may_be_secret(loc):
        return ""
    if isinstance(value, Mapping):
        return " (given: a section)"
    if isinstance(value, list | tuple):
        return " (given: a list)"
    if kind in ("model_type", "dict_type"):  # all that a section has, in a form of its own
        return " (given: a single value)"
    return f" (given: {_shown(value)})"


def _shown(value: Any) -> str:
    """Return a single value as YAML would have it, its beginning only where it is long."""
    if isinstance(value, str):
        return repr(value if len(value) <= _SHOWN else f"{value[:_SHOWN]}...")
    return str(value) if isinstance(value, float) else json.dumps(value, default=str)


def _may_be_secret(loc: Sequence[int | str]) -> bool:
    """Tell whether a value may be a secret, or hold one."""
    return any(part in _NEVER_SHOWN or str(part).endswith("_from_env") for part in loc)


def _place(loc: Sequence[int | str]) -> str:
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _model_at(model: type[BaseModel], loc: Sequence[int | str]) -> type[BaseModel]:
    """Return the model that stands at `loc` inside `model`, looking through tuples, dicts and optionals."""
    for part in loc:
        if isinstance(part, str) and part in model.model_fields:
            model = next(models_in(model.model_fields[part].annotation), model)
    return model
