"""Barrier training from Delta against torchrun on in-memory tensors, and what safety costs.

    kbit bench train [--rounds 3] [--only speed profiler resume start memory] [--json]

Both sides train the same CNN on the same rows with the same optimizer, DDP, batch and torch threads on two ranks.
Samples per second are the rows of all epochs after the first one, which warms up, over the wall time of their training:
from before the first batch is fetched until all ranks are done, on both sides without validation and the checkpoint
between epochs, of which the peer makes none. The product runs as it comes, and once more with a checkpoint every 100
steps. The sides take turns in going first; a ratio is the median of the rounds' ratios. The profiler's cost is measured
by bench/profiler_cost.py.

Resuming is timed from the session to the end of the first step, beside a fresh start: a run whose last checkpoint lies
in the middle of its epoch goes on from there.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import WriterProperties, write_deltalake

from bench import harness
from bench.harness import ROOT
from bench.tables import samples_schema
from bench.train_sides import Job, product, timing, torchrun, under_torchrun
from kbit_spark.events import Event
from kbit_spark.schemas.fields import Tensor
from kbit_spark.training import checkpoint

RESULTS = ROOT / "bench/results"
MASTER = "local-cluster[2,1,1024]"
RATIO, CHECKPOINTS, PROFILER, RESUME_S = 0.98, 0.02, 0.01, 2.0
SAVE_EVERY = 100
SMALL, LARGE = 20_000, 400_000
MEASURES = ("speed", "profiler", "resume", "start", "memory")


def main() -> None:
    """Run and print a markdown table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", nargs="+", choices=MEASURES, help="print only these, as JSON, and keep nothing")
    parser.add_argument("--table", type=Path, help="train on this table and measure the ratio only, printed as JSON")
    parser.add_argument("--master", default=MASTER)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--spark", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kbit-bench-") as name:
        folder = Path(name)
        spark = dict(setting.split("=", 1) for setting in arguments.spark)
        small = Job(
            arguments.table or folder / "small",
            arguments.master,
            global_batch=arguments.batch,
            precision=arguments.precision,
            spark=spark,
        )
        if arguments.table is not None:
            results: dict[str, Any] = _speed(small, folder, arguments.rounds, ("torchrun", "product"))
            sys.stdout.write(json.dumps(results) + "\n")
            return
        write_table(folder / "small", SMALL)
        wanted = arguments.only or MEASURES
        if "memory" in wanted:
            write_table(folder / "large", LARGE)
        measures: Mapping[str, Callable[[], Any]] = {
            "speed": lambda: _speed(small, folder, arguments.rounds, tuple(_SIDES)),
            "profiler": lambda: under_torchrun("profiler_cost.py", "cost", folder, ranks=2),
            "resume": lambda: _resume(small, folder, arguments.rounds),
            "start": lambda: _start(small, folder),
            "memory": lambda: {rows: _peak_mb(replace(small, table=folder / table), folder) for rows, table in _TABLES},
        }
        results = {measure: measures[measure]() for measure in MEASURES if measure in wanted}
    if arguments.only:
        sys.stdout.write(json.dumps(results, indent=2) + "\n")
        return
    RESULTS.mkdir(parents=True, exist_ok=True)
    markdown = _markdown(results, arguments.rounds, small)
    (RESULTS / "train.md").write_text(markdown)
    sys.stdout.write(json.dumps(results, indent=2) + "\n" if arguments.json else markdown)


def write_table(path: Path, rows: int) -> None:
    """Write a samples table as the ingest job would: partitioned by split, row groups of some 8 MiB."""
    schema = samples_schema("image", _IMAGE)
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


def _speed(job: Job, folder: Path, rounds: int, sides: Sequence[str]) -> dict[str, Any]:
    """Return the speed of each side and the ratios between them, each side beginning a round in turn."""
    rates: list[dict[str, float]] = []
    for number in range(rounds):
        first = number % len(sides)
        order = [*sides[first:], *sides[:first]]
        made = {side: _SIDES[side](job, folder) for side in (order if number % 2 == 0 else reversed(order))}
        rates.append(made)
    found: dict[str, Any] = {f"{side}_samples_per_s": median(rate[side] for rate in rates) for side in sides}
    for name, (part, whole) in _RATIOS.items():
        if part in sides and whole in sides:
            each = [rate[part] / rate[whole] for rate in rates]
            found |= {name: median(each), f"{name}_per_round": [round(ratio, 3) for ratio in each]}
    return found


def _product_rate(job: Job, folder: Path, **changes: Any) -> float:
    return timing(job, product(job, folder, **changes)).samples_per_s


def _with_checkpoints(job: Job, folder: Path) -> float:
    with tempfile.TemporaryDirectory(dir=folder) as kept:
        return _product_rate(job, folder, checkpoint={"dir": kept, "every_steps": SAVE_EVERY})


_SIDES: Mapping[str, Callable[[Job, Path], float]] = {
    "torchrun": lambda job, folder: torchrun(job, folder).samples_per_s,
    "product": _product_rate,
    "checkpoints": _with_checkpoints,
}

_RATIOS = {
    "ratio": ("product", "torchrun"),
    "checkpoints_ratio": ("checkpoints", "product"),
}


def _resume(job: Job, folder: Path, rounds: int) -> dict[str, Any]:
    """Return the seconds from session to first step, fresh and resumed, and those that reading the checkpoint takes."""
    job = replace(job, epochs=1)
    fresh, resumed, read = [], [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=folder) as kept:
            changes = {"checkpoint": {"dir": kept, "every_steps": SAVE_EVERY}, "log_every_steps": 1}
            fresh.append(_to_first_step_s(product(job, folder, **changes)))
            newest = checkpoint.newest(Path(kept))
            assert newest is not None
            shutil.rmtree(newest.path)  # as if the run had been killed before its end
            last = checkpoint.newest(Path(kept))
            assert last is not None
            began = time.perf_counter()
            checkpoint.read(last.path).load()
            read.append(time.perf_counter() - began)
            events = product(job, folder, **changes)
            assert any(event.kind == "train_resume" for event in events)
            resumed.append(_to_first_step_s(events))
    costs = [after - before for before, after in zip(fresh, resumed, strict=True)]
    return {
        "fresh_s": median(fresh),
        "resumed_s": median(resumed),
        "cost_s": median(costs),
        "cost_s_per_round": [round(cost, 2) for cost in costs],
        "read_s": median(read),
    }


def _to_first_step_s(events: Sequence[Event]) -> float:
    session, step = _session_and_first_step(events)
    return (step.time - session.time).total_seconds()


def _session_and_first_step(events: Sequence[Event]) -> tuple[Event, Event]:
    session = next(event for event in events if event.kind == "run")
    return session, next(event for event in events if event.kind == "train_window")


def _start(job: Job, folder: Path) -> dict[str, float]:
    """Return the seconds from spark-submit to the first step, and where they go."""
    begin = datetime.now(timezone.utc)
    session, step = _session_and_first_step(product(replace(job, epochs=1), folder, log_every_steps=1))
    return {
        "to_session_s": (session.time - begin).total_seconds(),
        "to_first_step_s": (step.time - begin).total_seconds(),
        "first_step_s": step.numbers.get("step_p50_s", 0.0),
    }


def _peak_mb(job: Job, folder: Path) -> float:
    """Return the largest resident memory of a rank, in MB, over one epoch at most."""
    events = product(replace(job, epochs=1), folder)
    return max(event.numbers["rss_bytes"] for event in events if event.kind == "train_window") / 1e6


def _markdown(results: dict[str, Any], rounds: int, job: Job) -> str:
    speed, profiler, resume, start, memory = (results[measure] for measure in MEASURES)
    saving = 1 - speed["checkpoints_ratio"]
    beyond = resume["cost_s"] - resume["read_s"]
    rows = [
        ["torchrun, tensors in memory", f"{speed['torchrun_samples_per_s']:,.0f} samples/s", ""],
        ["barrier stage, from Delta", f"{speed['product_samples_per_s']:,.0f} samples/s", ""],
        ["ratio", f"{speed['ratio']:.3f}", _target(f"≥ {RATIO}", speed["ratio"] >= RATIO)],
        [
            f"cost of a checkpoint every {SAVE_EVERY} steps",
            f"{saving:.1%}",
            _target(f"< {CHECKPOINTS:.0%}", saving < CHECKPOINTS),
        ],
        [
            "cost of the profiler",
            f"{profiler['cost']:.1%} ± {profiler['error']:.1%}",
            _proven(f"< {PROFILER:.0%}", profiler["cost"], profiler["error"], PROFILER),
        ],
        ["session to the end of the first step, fresh", f"{resume['fresh_s']:.2f} s", "shown"],
        ["session to the end of the first step, resumed", f"{resume['resumed_s']:.2f} s", "shown"],
        [
            f"cost of resuming, less {resume['read_s']:.2f} s to read the checkpoint",
            f"{beyond:.2f} s",
            _target(f"≤ {RESUME_S:g} s", beyond <= RESUME_S),
        ],
        ["spark-submit to session", f"{start['to_session_s']:.1f} s", "shown"],
        ["spark-submit to the end of the first step", f"{start['to_first_step_s']:.1f} s", "shown"],
        *([f"peak memory of a rank, {n:,} rows", f"{mb:,.0f} MB", "the same"] for n, mb in memory.items()),
    ]
    when = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    note = f"{when}, {MASTER}, CNN on 28 x 28 digits, global batch {job.global_batch}, {job.precision}, "
    note += f"{job.threads} torch thread(s) a rank, wall time of epochs 2 to {job.epochs}, medians of {rounds} rounds; "
    note += "the profiler's cost by blocks of steps with and without it, in turn, in the same processes."
    return (
        f"# Training: barrier stage against torchrun\n\n{note}\n\n{harness.table(['what', 'value', 'target'], rows)}\n"
    )


def _target(text: str, reached: bool) -> str:
    return text if reached else f"{text} MISSED"


def _proven(text: str, value: float, error: float, limit: float) -> str:
    """Return the verdict on a value that must be below a limit, two errors of it included."""
    return f"{text} not proven" if abs(value - limit) <= 2 * error else _target(text, value < limit)


_IMAGE = Tensor(dtype="uint8", shape=(28, 28))
_TABLES = ((SMALL, "small"), (LARGE, "large"))


if __name__ == "__main__":
    main()
