"""Kernels made from decoder plans."""

from __future__ import annotations

from dataclasses import dataclass

from kbit_spark.codecs.plan import Plan

__all__ = ["NotOnGpu", "Program", "program_for"]


class NotOnGpu(Exception):  # noqa: N818 - it says where, not what is wrong
    """There is no kernel for a plan; the message says why. The CPU decodes it."""


@dataclass(frozen=True)
class Program:
    """A kernel and the columns that it fills."""

    source: str

    def to_json(self) -> str:
        """Return the text that kbit.gpu.Program reads."""
        return self.source


def program_for(plan: Plan) -> Program:
    """Return the kernel that decodes what `plan` describes.

    Raises:
        NotOnGpu: there is none; the message says why.
    """
    msg = f"no kernel reads {plan['format']}"
    raise NotOnGpu(msg)
