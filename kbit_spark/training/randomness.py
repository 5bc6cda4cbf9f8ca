"""Random numbers of the ranks: dropout differs among ranks and goes on where a checkpoint left it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def seed_rank(seed: int, rank: int, total_steps: int) -> None:
    """Seed this process's generators; ranks and places in a run get unrelated streams."""
    words = np.random.SeedSequence((seed, rank, total_steps)).generate_state(3, np.uint64)
    torch.manual_seed(int(words[0] >> 1))
    np.random.seed(int(words[1] & 0xFFFF_FFFF))
    random.seed(int(words[2]))


def random_state(device: torch.device) -> dict[str, Any]:
    """Return the state of all generators as tensors and plain values, which load without executing code."""
    version, words, gauss = random.getstate()
    numpy = np.random.get_state(legacy=False)
    assert isinstance(numpy, dict)
    state = {
        "torch": torch.get_rng_state(),
        "python": (version, list(words), gauss),
        "numpy": (
            torch.from_numpy(numpy["state"]["key"].astype(np.int64)),
            int(numpy["state"]["pos"]),
            int(numpy["has_gauss"]),
            float(numpy["gauss"]),
        ),
    }
    return state if device.type != "cuda" else {**state, "cuda": torch.cuda.get_rng_state(device)}


def restore_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Take `random_state` back; a checkpoint of another kind of device leaves the GPU's generator alone."""
    torch.set_rng_state(state["torch"])
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    key, pos, has_gauss, cached = state["numpy"]
    np.random.set_state(("MT19937", key.numpy().astype(np.uint32), pos, has_gauss, cached))
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
