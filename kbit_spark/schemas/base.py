"""What all value types are made of."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Engine = Literal["cpu", "gpu"]
"""What decodes a batch and encodes its files."""


class Frozen(BaseModel):
    """An immutable value that refuses unknown keys."""

    # the log gets pydantic's error as the cause of ours, and what was given may be a secret
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
