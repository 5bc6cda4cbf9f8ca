"""Random numbers of the ranks: dropout differs among ranks and goes on where a checkpoint left it."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist

from kbit_spark.training.world import World


def seed_rank(seed: int, rank: int, total_steps: int) -> None:
    """Seed this rank's generators; ranks and places in a run get unrelated streams."""
    torch.manual_seed(int(np.random.SeedSequence((seed, rank, total_steps)).generate_state(1, np.uint64)[0] >> 1))


def gather_random_state(world: World) -> torch.Tensor:
    """Return the states of all ranks, shape (ranks, bytes), uint8 on the CPU; every rank must call it."""
    state = _state(world).to(world.device)
    states = [torch.empty_like(state) for _ in range(world.size)]
    dist.all_gather(states, state)
    return torch.stack(states).cpu()


def restore_random_state(states: torch.Tensor, world: World, seed: int, total_steps: int) -> None:
    """Take this rank's state back; with another world size or device there is none, so seed anew."""
    own = _state(world)
    if states.shape != (world.size, len(own)):
        seed_rank(seed, world.rank, total_steps)
        return
    mine = states[world.rank]
    cpu = len(torch.get_rng_state())
    torch.set_rng_state(mine[:cpu].clone())
    if world.device.type == "cuda":
        torch.cuda.set_rng_state(mine[cpu:].clone(), world.device)


def _state(world: World) -> torch.Tensor:
    parts = [torch.get_rng_state()]
    if world.device.type == "cuda":
        parts.append(torch.cuda.get_rng_state(world.device))
    return torch.cat(parts)
