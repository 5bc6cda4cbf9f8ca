"""Barrier training from Delta against torchrun on in-memory tensors; start-up time; memory of a rank by table size.

    kbit bench train [--rounds 3] [--json]

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
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import WriterProperties, write_deltalake

from bench import harness
from kbit_spark.events import Event
from kbit_spark.local.digits import digits
from kbit_spark.schemas import Tensor
from kbit_spark.telemetry.report import read_events

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench/results"
MASTER = "local-cluster[2,1,1024]"
RANKS, BATCH, EPOCHS, THREADS = 2, 128, 5, 1
TARGET = 0.97
SMALL, LARGE = 20_000, 400_000


def main() -> None:
    """Run and print a markdown table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kbit-bench-") as name:
        folder = Path(name)
        write_table(folder / "small", SMALL)
        write_table(folder / "large", LARGE)
        results = {
            "speed": _speed(folder, arguments.rounds),
            "start": _start(folder),
            "memory": {rows: _peak_mb(folder, table) for rows, table in ((SMALL, "small"), (LARGE, "large"))},
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


def _speed(folder: Path, rounds: int) -> dict[str, Any]:
    pairs = []
    for number in range(rounds):
        sides = {"peer": lambda: _torchrun(folder), "ours": lambda: _ours(folder)}
        order = sorted(sides, reverse=number % 2 == 0)
        rates = {side: sides[side]() for side in order}
        pairs.append((rates["peer"], rates["ours"]))
    return {
        "torchrun_samples_per_s": median(peer for peer, _ in pairs),
        "product_samples_per_s": median(ours for _, ours in pairs),
        "ratio": median(ours / peer for peer, ours in pairs),
        "ratio_per_round": [round(ours / peer, 3) for peer, ours in pairs],
    }


def _rate(rows: float, epoch_s: Sequence[float]) -> float:
    """Return samples per second, from the rows of one epoch and the wall time of each; the first one warms up."""
    return rows * (len(epoch_s) - 1) / sum(epoch_s[1:])


def _torchrun(folder: Path) -> float:
    log = folder / "torchrun.txt"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    command += [str(ROOT / "bench/torchrun_baseline.py"), str(folder / "small"), "--threads", str(THREADS)]
    command += ["--global-batch", str(BATCH), "--epochs", str(EPOCHS)]
    harness.run(command, log, {**os.environ, "PYTHONPATH": str(ROOT)})
    line = next(line for line in log.read_text().splitlines() if line.startswith('{"rows"'))
    return _rate(**json.loads(line))


def _ours(folder: Path) -> float:
    epochs = [event.numbers for event in _product(folder, "small", "speed") if event.kind == "train_epoch"]
    rows = epochs[0]["step"] * BATCH  # steps so far, after the first epoch
    return _rate(rows, [numbers["train_s"] for numbers in epochs])


def _product(folder: Path, table: str, name: str, **changes: Any) -> list[Event]:
    here = folder / name
    here.mkdir()
    config = {
        "data": {"table": str(folder / table)},
        "world_size": RANKS,
        "epochs": EPOCHS,
        "global_batch_size": BATCH,
        "checkpoint": {"dir": str(here / "checkpoints")},
        "telemetry": {"run_dir": str(here / "runs")},
        **changes,
    }
    (here / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
    command = [str(ROOT / "spark-submit.sh"), "--master", MASTER, "--driver-memory", "1g"]
    command += ["--conf", f"spark.task.cpus={THREADS}"]  # what a rank takes as its number of torch threads
    command += [str(ROOT / "jobs/train_barrier.py"), "--config", str(here / "config.yaml")]
    harness.run(command, here / "log.txt")
    events = read_events((here / "runs").glob("*/events.jsonl"))
    shutil.rmtree(here)
    return events


def _start(folder: Path) -> dict[str, float]:
    """Return the seconds from spark-submit to the first step, and where they go."""
    begin = datetime.now(timezone.utc)
    events = _product(folder, "small", "start", epochs=1, log_every_steps=1)
    session = next(event for event in events if event.kind == "run")
    step = next(event for event in events if event.kind == "train_window")
    first_step_s = step.numbers.get("step_p50_s", 0.0)
    return {
        "to_session_s": (session.time - begin).total_seconds(),
        "to_first_step_s": (step.time - begin).total_seconds(),
        "first_step_s": first_step_s,
    }


def _peak_mb(folder: Path, table: str) -> float:
    """Return the largest resident memory of a rank, in MB, over one epoch at most."""
    events = _product(folder, table, f"memory-{table}", epochs=1)
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
    note = f"{when}, {MASTER}, CNN on 28 x 28 digits, global batch {BATCH}, fp32, "
    note += f"{THREADS} torch thread(s) a rank, wall time of epochs 2 to {EPOCHS}, medians of {rounds} rounds."
    return (
        f"# Training: barrier stage against torchrun\n\n{note}\n\n{harness.table(['what', 'value', 'target'], rows)}\n"
    )


_IMAGE = Tensor(dtype="uint8", shape=(28, 28))


if __name__ == "__main__":
    main()
