"""The device memory that the ingest takes at batches of a million payloads of 3 KB, against what it may take.

    python -m bench.gpu.memory produce --servers HOST:PORT [--shapes picture picture-ints] [--batches 2]
    python -m bench.gpu.memory run --servers HOST:PORT --out FILE

`run` appends a line of JSON for each shape: bytes used on the device before the session, with it, and at most while the
batches ran (sampled every 100 ms; nobody else may use the device), and the bounds that the settings set. The pool's
share is the pool's; the CUDA context and its kernels come on top.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pynvml

from bench import harness
from bench.gpu import ingest
from bench.gpu.sampler import Sampler
from kbit_spark import ingest as job
from kbit_spark import rapids
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.telemetry.report import read_events

ROWS = 1_000_000
SHAPES = ("picture", "picture-ints")
SAMPLE_S = 0.1
GPU = "spark.rapids.memory.gpu."


class Device(Sampler):
    """The first device that NVML knows; samples the bytes used."""

    def __init__(self) -> None:
        super().__init__(SAMPLE_S)
        self.peak_bytes = 0
        self._there = True
        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        except pynvml.NVMLError:  # a trial without a GPU
            self._there = False

    def used_bytes(self) -> int:
        """Return what is used now, by whomever."""
        return int(pynvml.nvmlDeviceGetMemoryInfo(self._handle).used) if self._there else 0

    def total_bytes(self) -> int:
        """Return the size of the device's memory."""
        return int(pynvml.nvmlDeviceGetMemoryInfo(self._handle).total) if self._there else 0

    def take_peak(self) -> int:
        """Return the most that was used since the last call."""
        peak, self.peak_bytes = max(self.peak_bytes, self.used_bytes()), 0
        return peak

    def sample(self) -> None:
        """See `Sampler`."""
        self.peak_bytes = max(self.peak_bytes, self.used_bytes())


def measure(engine: str, servers: str, shapes: list[str], scale: float, out: Path) -> None:
    """Run the stream of each shape in one session and append what it took."""
    folder = Path(tempfile.mkdtemp(prefix="bench-memory-"))
    rows = int(ROWS * scale)
    with Device() as device:
        idle = device.used_bytes()
        configs = [ingest.config_of(ingest.case_of(name), name, servers, folder, rows, engine) for name in shapes]
        spark = ingest.session(engine, configs)
        time.sleep(2 * SAMPLE_S)
        session = device.take_peak()
        bounds = {
            name: float(spark.sparkContext.getConf().get(GPU + name, rapids.DEFAULTS[GPU + name]) or 0)
            * device.total_bytes()
            for name in ("allocFraction", "maxAllocFraction")
        }
        for name in shapes:
            here = folder / name
            here.mkdir()
            config = ingest.config_of(ingest.case_of(name), name, servers, here, rows, engine, topic(name))
            job.run(IngestConfig.model_validate(config))
            peak = device.take_peak()
            figures = {
                "engine": engine,
                "shape": name,
                "batch_rows": rows,
                "batch_s": [round(s, 2) for s in harness.Batches.of_checkpoint(here / "checkpoint").steady_s(1)],
                "device_bytes": device.total_bytes(),
                "idle_bytes": idle,
                "session_bytes": session,
                "peak_bytes": peak,
                "peak_above_session_bytes": peak - session,
                "peak_fraction": (peak - idle) / max(device.total_bytes(), 1),
                "bounds_bytes": bounds,
                "within_max": peak - idle <= bounds["maxAllocFraction"],
                **_events(here),
            }
            with out.open("a") as file:
                file.write(json.dumps(figures) + "\n")
            sys.stdout.write(json.dumps(figures) + "\n")
            shutil.rmtree(here)
        spark.stop()
    shutil.rmtree(folder)


def _events(folder: Path) -> Mapping[str, Any]:
    """Return the engines of the batches and why the GPU failed any."""
    events = read_events(folder.glob("runs/*/events.jsonl"))
    return {
        "engines": [event.labels["engine"] for event in events if event.kind == "ingest_batch"],
        "fell_back": [event.labels["reason"] for event in events if event.kind == "decode_fallback"],
    }


def topic(name: str) -> str:
    """Return the topic of a shape."""
    return f"{name}-{ROWS}"


def main() -> None:
    """Do what the first argument says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    producing = commands.add_parser("produce")
    producing.add_argument("--batches", type=int, default=2)
    running = commands.add_parser("run")
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--engine", default="gpu", choices=["gpu", "cpu"])
    for command in (producing, running):
        command.add_argument("--servers", required=True)
        command.add_argument("--shapes", nargs="*", default=list(SHAPES), choices=SHAPES)
        command.add_argument("--scale", type=float, default=1.0, help="of the batches' rows, for a trial")
    arguments = parser.parse_args()
    if arguments.command == "produce":
        sizes = {name: {ROWS: arguments.batches} for name in arguments.shapes}
        ingest.produce(arguments.servers, sizes, arguments.scale)
    else:
        measure(arguments.engine, arguments.servers, arguments.shapes, arguments.scale, arguments.out)


if __name__ == "__main__":
    main()
