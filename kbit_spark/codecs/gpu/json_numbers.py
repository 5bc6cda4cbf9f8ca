"""Numbers in JSON: how kernels read integers, and the table by which they make doubles."""

from __future__ import annotations

POWERS = 300
"""Powers of ten up to this one, and its negative, are in the kernel's table."""


def integer(low: int, high: int, *, mongo: bool) -> str:
    """Return the expression that reads an integer within limits."""
    least = "-0x7fffffffffffffffLL - 1" if low == -(2**63) else f"{low}LL"
    return f"read_{'mongo_' if mongo else ''}integer(in, {least}, {high}LL)"


def powers_of_ten() -> str:
    """Return the first 128 bits of the powers of ten, each as two words, the high one first."""
    words: list[str] = []
    for exponent in range(-POWERS, POWERS + 1):
        if exponent >= 0:
            value = 5**exponent
            shift = value.bit_length() - 128
            bits = value >> shift if shift > 0 else value << -shift
        else:  # rounded up: the product must not be too small
            divisor = 5**-exponent
            bits = (1 << (divisor.bit_length() + 127)) // divisor + 1
            bits >>= bits.bit_length() - 128
        words += [f"0x{bits >> 64:x}ULL", f"0x{bits % 2**64:x}ULL"]
    return f"DEVICE const u64 powers_of_ten[] = {{{', '.join(words)}}};"
