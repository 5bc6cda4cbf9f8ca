"""What a tensor's dtype and shape mean for kernels."""

from __future__ import annotations

import math

from kbit_spark.codecs.plan import Plan

WARP_ITEMS = 64
"""From so many numbers on, a warp reads a tensor faster than a thread."""


def tensor_item_bytes(tensor: Plan) -> int:
    """Return the bytes of an item."""
    return int("".join(c for c in tensor["dtype"] if c.isdigit())) // 8


def tensor_item_type(tensor: Plan) -> str:
    """Return the C type of an item."""
    size = 8 * tensor_item_bytes(tensor)
    if tensor["dtype"].startswith("float"):
        return {32: "float", 64: "double"}[size]
    return f"{'u' if tensor['dtype'].startswith('u') else 'i'}{size}"


def tensor_limits(tensor: Plan) -> tuple[int, int]:
    """Return the least and the largest integer that an item holds."""
    bits = 8 * tensor_item_bytes(tensor)
    return (0, 2**bits - 1) if tensor["dtype"].startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def tensor_items(tensor: Plan) -> int:
    """Return the number of items."""
    return math.prod(tensor["shape"])


def tensor_fits(tensor: Plan) -> str:
    """Return the condition that the integer `value` is one of the tensor's."""
    low, high = tensor_limits(tensor)
    if tensor["dtype"].startswith("float") or (low <= -(2**63) and high >= 2**63 - 1):
        return "true"
    return f"value >= {low}LL && value <= {high}LL"
