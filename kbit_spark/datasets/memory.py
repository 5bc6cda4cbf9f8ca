"""Memory that is written again when nobody reads it any more."""

from __future__ import annotations

import weakref

import numpy as np
from numpy.typing import NDArray


class Recycled:
    """Hands out uint8 arrays; the memory of one that is gone serves the next.

    The kernel has to clear fresh memory before it is written, which takes as long as writing it. An array counts as in
    use while the array itself lives, so tensors must be made of it, not of a view (``torch.from_numpy`` keeps its
    argument alive as long as any tensor shares its memory).
    """

    def __init__(self) -> None:
        self._free: list[NDArray[np.uint8]] = []

    def array(self, *shape: int) -> NDArray[np.uint8]:
        """Return an array whose items may be anything."""
        size = int(np.prod(shape))
        while self._free:
            if (memory := self._free.pop()).size >= size:
                break
        else:
            memory = np.empty(size, dtype=np.uint8)
        array = memory[:size].reshape(shape)
        weakref.finalize(array, self._free.append, memory).atexit = False
        return array
