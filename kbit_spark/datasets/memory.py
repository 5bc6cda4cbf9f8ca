"""Memory that is written again when nobody reads it any more."""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Kind = TypeVar("Kind", bound=np.generic)


class Recycled(Generic[Kind]):
    """Hands out arrays of one dtype; the memory of one that is gone serves the next.

    The kernel has to clear fresh memory before it is written, which takes as long as writing it. An array counts as in
    use while the array itself lives, so tensors must be made of it, not of a view (``torch.from_numpy`` keeps its
    argument alive as long as any tensor shares its memory).
    """

    def __init__(self, dtype: type[Kind]) -> None:
        self._dtype = dtype
        self._free: list[NDArray[Kind]] = []

    def array(self, *shape: int) -> NDArray[Kind]:
        """Return an array whose items may be anything."""
        size = int(np.prod(shape))
        while self._free:
            if (memory := self._free.pop()).size >= size:
                break
        else:
            memory = np.empty(size, dtype=self._dtype)
        array = memory[:size].reshape(shape)
        weakref.finalize(array, self._free.append, memory).atexit = False
        return array
