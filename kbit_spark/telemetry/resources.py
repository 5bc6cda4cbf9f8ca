"""What this process uses: CPU, resident memory, GPU memory. Runs on executors, so it imports no pyspark."""

from __future__ import annotations

import sys

import psutil


class Resources:
    """Samples the process; CPU load is over the time since the last sample (100 = one core)."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._process.cpu_percent()  # the first call only sets the start

    def sample(self) -> dict[str, float]:
        """Return ``cpu_percent``, ``rss_bytes`` and, with a GPU in use, ``gpu_bytes`` (used on the device)."""
        numbers = {"cpu_percent": self._process.cpu_percent(), "rss_bytes": float(self._process.memory_info().rss)}
        gpu = _gpu_bytes()
        return numbers if gpu is None else {**numbers, "gpu_bytes": gpu}


def _gpu_bytes() -> float | None:
    """Return the used bytes of torch's current device; None unless this process already initialized CUDA."""
    torch = sys.modules.get("torch")  # never the one to import torch or to create a CUDA context
    if torch is None or not torch.cuda.is_initialized():
        return None
    free, total = torch.cuda.mem_get_info()
    return float(total - free)
