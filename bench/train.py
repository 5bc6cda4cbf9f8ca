"""Barrier training from Delta against torchrun on in-memory tensors; start-up time; memory of a rank by table size.

    kbit bench train [--rounds 3] [--json] [--profiler]

Both sides train the same CNN on the same rows with the same optimizer, batch and torch threads on two ranks. Samples
per second are the rows of all epochs after the first one, which warms up, over the wall time of their training: from
before the first batch is fetched until all ranks are done, on both sides without validation and checkpoint, of which
the peer makes none. The sides take turns in going first; a ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import WriterProperties, write_deltalake

from bench import harness
from kbit_spark.events import Event
from kbit_spark.schemas import Tensor
from kbit_spark.telemetry.report import read_events

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench/results"
MASTER = "local-cluster[2,1,1024]"
RANKS, EPOCHS, THREADS = 2, 5, 1
TARGET = 0.97
SMALL, LARGE = 20_000, 400_000


@dataclass(frozen=True)
class Setup:
    """Where both sides run, and how."""

    folder: Path
    """Holds the table `small`."""

    master: str = MASTER
    batch: int = 128
    precision: str = "fp32"
    spark: tuple[str, ...] = ()
    """Settings of the product's session, ``key=value``."""


def main() -> None:
    """Run and print a markdown table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--profiler", action="store_true", help="measure only what the profiler costs, printed as JSON")
    parser.add_argument("--table", type=Path, help="train on this table and measure speed only, printed as JSON")
    parser.add_argument("--master", default=MASTER)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--spark", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kbit-bench-") as name:
        folder = Path(name)
        setup = Setup(folder, arguments.master, arguments.batch, arguments.precision, tuple(arguments.spark))
        if arguments.table is not None:
            (folder / "small").symlink_to(arguments.table.absolute())
            sys.stdout.write(json.dumps(_speed(setup, arguments.rounds)) + "\n")
            return
        write_table(folder / "small", SMALL)
        if arguments.profiler:
            sys.stdout.write(json.dumps(_profiler(setup, arguments.rounds)) + "\n")
            return
        write_table(folder / "large", LARGE)
        results = {
            "speed": _speed(setup, arguments.rounds),
            "start": _start(setup),
            "memory": {rows: _peak_mb(setup, table) for rows, table in ((SMALL, "small"), (LARGE, "large"))},
        }
    RESULTS.mkdir(parents=True, exist_ok=True)
    markdown = _markdown(results, arguments.rounds)
    (RESULTS / "train.md").write_text(markdown)
    sys.stdout.write(json.dumps(results, indent=2) + "\n" if arguments.json else markdown)


def write_table(path: Path, rows: int) -> None:
    """Write a samples table as the ingest job would: partitioned by split, row groups of some 8 MiB."""
    tensor = {key: json.dumps(v) if isinstance(v, list) else v for key, v in _IMAGE.to_metadata().items()}
    schema = pa.schema(
        [
            pa.field("image", pa.binary(), metadata=tensor),
            pa.field("label", pa.int32()),
            pa.field("_split", pa.string()),
        ]
    )
    from kbit_spark.local.digits import digits

    pool = list(digits(min(rows, SMALL)))
    chunk = SMALL
    for _ in range(0, rows, chunk):
        splits = np.where(
            np.arange(chunk) % 10 == 0, np.where(np.arange(chunk) % 20 == 0, "test", "validation"), "train"
        )
        columns = [
            pa.array([digit.image.tobytes() for digit in pool], pa.binary()),
            pa.array([digit.label for digit in pool], pa.int32()),
            pa.array(splits.tolist()),
        ]
        write_deltalake(
            str(path),
            pa.table(columns, schema=schema),
            mode="append",
            partition_by=["_split"],
            writer_properties=WriterProperties(max_row_group_size=10_000, compression="SNAPPY"),
        )


def _speed(setup: Setup, rounds: int) -> dict[str, Any]:
    pairs = []
    for number in range(rounds):
        sides = {"peer": lambda: _torchrun(setup), "ours": lambda: _ours(setup)}
        order = sorted(sides, reverse=number % 2 == 0)
        rates = {side: sides[side]() for side in order}
        pairs.append((rates["peer"], rates["ours"]))
    return {
        "torchrun_samples_per_s": median(peer for peer, _ in pairs),
        "product_samples_per_s": median(ours for _, ours in pairs),
        "ratio": median(ours / peer for peer, ours in pairs),
        "ratio_per_round": [round(ours / peer, 3) for peer, ours in pairs],
    }


def _profiler(setup: Setup, rounds: int) -> dict[str, Any]:
    """Return the speed with the profiler over the speed without it, the two taking turns in going first."""
    pairs = []
    for number in range(rounds):
        order = (True, False) if number % 2 == 0 else (False, True)
        rates = {phases: _ours(setup, profile={"phases": phases}) for phases in order}
        pairs.append((rates[False], rates[True]))
    ratios = [on / off for off, on in pairs]
    return {"ratio": median(ratios), "ratio_per_round": [round(ratio, 4) for ratio in ratios], "target": "≥ 0.99"}


def _rate(rows: float, epoch_s: Sequence[float]) -> float:
    """Return samples per second, from the rows of one epoch and the wall time of each; the first one warms up."""
    return rows * (len(epoch_s) - 1) / sum(epoch_s[1:])


def _torchrun(setup: Setup) -> float:
    log = setup.folder / "torchrun.txt"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    command += [str(ROOT / "bench/torchrun_baseline.py"), str(setup.folder / "small"), "--threads", str(THREADS)]
    command += ["--global-batch", str(setup.batch), "--precision", setup.precision, "--epochs", str(EPOCHS)]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    harness.run(command, log, {**os.environ, "PYTHONPATH": path})
    line = next(line for line in log.read_text().splitlines() if line.startswith('{"rows"'))
    return _rate(**json.loads(line))


def _ours(setup: Setup, **changes: Any) -> float:
    found = _product(setup, "small", "speed", **changes)
    epochs = [event.numbers for event in found if event.kind == "train_epoch"]
    rows = epochs[0]["step"] * setup.batch  # steps so far, after the first epoch
    return _rate(rows, [numbers["train_s"] for numbers in epochs])


def _product(setup: Setup, table: str, name: str, **changes: Any) -> list[Event]:
    here = setup.folder / name
    here.mkdir()
    config = {
        "data": {"table": str(setup.folder / table)},
        "world_size": RANKS,
        "epochs": EPOCHS,
        "global_batch_size": setup.batch,
        "precision": setup.precision,
        "spark": dict(setting.split("=", 1) for setting in setup.spark),
        "checkpoint": {"dir": str(here / "checkpoints")},
        "telemetry": {"run_dir": str(here / "runs")},
        **changes,
    }
    (here / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
    command = [str(ROOT / "spark-submit.sh"), "--master", setup.master, "--driver-memory", "1g"]
    command += ["--conf", f"spark.task.cpus={THREADS}"]  # what a rank takes as its number of torch threads
    command += [str(ROOT / "jobs/train_barrier.py"), "--config", str(here / "config.yaml")]
    harness.run(command, here / "log.txt")
    events = read_events((here / "runs").glob("*/events.jsonl"))
    shutil.rmtree(here)
    return events


def _start(setup: Setup) -> dict[str, float]:
    """Return the seconds from spark-submit to the first step, and where they go."""
    begin = datetime.now(timezone.utc)
    events = _product(setup, "small", "start", epochs=1, log_every_steps=1)
    session = next(event for event in events if event.kind == "run")
    step = next(event for event in events if event.kind == "train_window")
    first_step_s = step.numbers.get("step_p50_s", 0.0)
    return {
        "to_session_s": (session.time - begin).total_seconds(),
        "to_first_step_s": (step.time - begin).total_seconds(),
        "first_step_s": first_step_s,
    }


def _peak_mb(setup: Setup, table: str) -> float:
    """Return the largest resident memory of a rank, in MB, over one epoch at most."""
    events = _product(setup, table, f"memory-{table}", epochs=1)
    return max(event.numbers["rss_bytes"] for event in events if event.kind == "train_window") / 1e6


def _markdown(results: dict[str, Any], rounds: int) -> str:
    speed, start, memory = results["speed"], results["start"], results["memory"]
    rows = [
        ["torchrun, tensors in memory", f"{speed['torchrun_samples_per_s']:,.0f} samples/s", ""],
        ["barrier stage, from Delta", f"{speed['product_samples_per_s']:,.0f} samples/s", ""],
        ["ratio", f"{speed['ratio']:.3f}", f"≥ {TARGET}"],
        ["spark-submit to session", f"{start['to_session_s']:.1f} s", "shown"],
        ["spark-submit to the end of the first step", f"{start['to_first_step_s']:.1f} s", "shown"],
        *([f"peak memory of a rank, {n:,} rows", f"{mb:,.0f} MB", "the same"] for n, mb in memory.items()),
    ]
    when = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    note = f"{when}, {MASTER}, CNN on 28 x 28 digits, global batch {Setup.batch}, fp32, "
    note += f"{THREADS} torch thread(s) a rank, wall time of epochs 2 to {EPOCHS}, medians of {rounds} rounds."
    return (
        f"# Training: barrier stage against torchrun\n\n{note}\n\n{harness.table(['what', 'value', 'target'], rows)}\n"
    )


_IMAGE = Tensor(dtype="uint8", shape=(28, 28))


if __name__ == "__main__":
    main()
