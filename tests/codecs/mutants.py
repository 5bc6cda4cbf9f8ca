"""Changes of a payload, and what must hold for whatever a decoder makes of them."""

from __future__ import annotations

import random
from typing import Any


def mutants(payload: bytes, seed: int) -> list[bytes]:
    """Return every proper prefix first, then random changes."""
    rng = random.Random(seed)
    changed = [payload[:cut] for cut in range(len(payload))]
    for _ in range(40 if payload else 0):
        data, at = bytearray(payload), rng.randrange(len(payload))
        match rng.randrange(4):
            case 0:
                data[at] = rng.randrange(256)
            case 1:
                data[at] ^= 1 << rng.randrange(8)
            case 2:
                data[at:at] = rng.randbytes(rng.randrange(1, 11))
            case _:
                data[at : at + rng.randrange(1, 4)] = b""
        changed.append(bytes(data))
    return changed


def check_results(payload: bytes, changed: list[bytes], results: list[dict[str, Any]]) -> None:
    """Assert that each of `mutants` gave a value or an error at a place in it, and no prefix a value."""
    for mutant, result in zip(changed, results, strict=True):
        assert ("value" in result) != ("error" in result), mutant
        assert "value" in result or 0 <= result["position"] <= len(mutant), (mutant, result)
    assert all("error" in result for result in results[: len(payload)]), "a proper prefix gave a value"
