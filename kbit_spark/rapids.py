"""What a session with RAPIDS needs beside the plugin's name: its class path, and settings that suit a stream.

Docs/gpu.md explains them. Whatever the user sets wins.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import psutil

from kbit_spark.errors import MissingRequirement

PLUGIN = "com.nvidia.spark.SQLPlugin"
ENABLED = "spark.rapids.sql.enabled"
"""RAPIDS plans what runs while this is true. That is the writes of batches that the GPU decodes, and nothing else."""

DEFAULTS: Mapping[str, str] = {
    ENABLED: "false",
    # else an expression that the GPU lacks would run on the CPU in the midst of a plan that claims to be the GPU's
    "spark.rapids.sql.expression.cpuBridge.enabled": "false",
    "spark.rapids.sql.explain": "NONE",
    # a bounded pool: by default the plugin claims nearly all of the GPU's memory at its start, and never gives it back
    "spark.rapids.memory.gpu.allocFraction": "0.3",
    "spark.rapids.memory.gpu.maxAllocFraction": "0.4",
    "spark.rapids.memory.gpu.minAllocFraction": "0.1",
    # memory of its own for each task: 0.9 of the time for tables of hundreds of columns (bench/results/ingest-gpu.md)
    "spark.rapids.memory.gpu.pool": "ARENA",
    # what a task holds on the GPU at a time, and how many tasks do
    "spark.rapids.sql.batchSizeBytes": "256m",
    "spark.rapids.sql.concurrentGpuTasks": "8",
    # ranges of a small batch that one task reads: put together as rows, they are decoded at once, not one by one
    "spark.rapids.sql.exec.CoalesceExec": "false",
    "spark.sql.execution.sortBeforeRepartition": "false",  # RAPIDS cannot sort binary
}

PINNED_POOL = "spark.rapids.memory.pinnedPool.size"
_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
_GIB = 1 << 30
RMM_LOG = "RMM_DEBUG_LOG_FILE"
"""Environment variable: RMM, which tells of every full pool, writes to this file and not to the terminal."""


def is_asked_for(plugins: str | None) -> bool:
    """Tell whether ``spark.plugins`` names RAPIDS."""
    return PLUGIN in (plugins or "").split(",")


def defaults(memory_bytes: int | None = None) -> dict[str, str]:
    """Return the settings of a session; `memory_bytes`: what the machine has, where executor and driver are one."""
    return {**DEFAULTS, PINNED_POOL: f"{pinned_pool_gib(memory_bytes or 0)}g"}


def pinned_pool_gib(memory_bytes: int) -> int:
    """Return the size of the pinned host memory: a sixteenth of all, but 2 to 8 GiB.

    Copies that find no room in it are slow. The pages of a large batch pass through it, those of all tasks at a time.
    """
    return min(8, max(2, memory_bytes // 16 // _GIB))


def machine_memory() -> int:
    """Return the bytes of memory that this process may use, as far as it can tell."""
    limit = _MEMORY_LIMIT.read_text().strip() if _MEMORY_LIMIT.is_file() else "max"
    total = int(psutil.virtual_memory().total)
    return min(total, int(limit)) if limit.isdigit() else total


def jars_folder(folder: Path) -> Path:
    """Return the folder of the jars for the GPU: the one that ``KBIT_GPU_JARS`` names, else `folder`."""
    return Path(os.environ.get("KBIT_GPU_JARS", folder))


def class_path(spark_jars: Path, folder: Path) -> dict[str, str]:
    """Return the settings that put RAPIDS and kbit-gpu, with what they use of ours, on every class path.

    ``spark.jars`` would be too late: plugins are made before those jars are there, and RAPIDS finds a decoder's CUDA
    bindings only from its own class loader.

    Args:
        spark_jars: the folder that holds kbit-jvm.
        folder: the folder of the jars for the GPU; ``KBIT_GPU_JARS`` names another one.

    Raises:
        MissingRequirement: no jar of RAPIDS there.
    """
    folder = jars_folder(folder)
    jars = sorted(folder.glob("*.jar"))
    if not any(jar.name.startswith("rapids-4-spark") for jar in jars):
        msg = f"spark.plugins names RAPIDS, and there is no jar of it in {folder}"
        raise MissingRequirement(msg, "run `scripts/setup.sh gpu`, or set KBIT_GPU_JARS to the folder that holds it")
    path = ":".join(map(str, [*jars, *sorted(spark_jars.glob("kbit-jvm*.jar"))]))
    return {"spark.driver.extraClassPath": path, "spark.executor.extraClassPath": path}
