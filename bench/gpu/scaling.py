"""Training on 1, 2 and 4 GPUs of one host, from Delta by the product and on synthetic data by torchrun.

    python -m bench.gpu.scaling run OUT                     # on the device: OUT/runs.jsonl, a line as each run ends
    python -m bench.gpu.scaling table OUT/runs.jsonl        # anywhere: the figures as markdown

The peer has a few batches of ready-made floats on the GPU and reads, shuffles, checks and reports nothing. Both sides
train the same model with the same optimizer and DDP, and the same rows per rank and step, however many ranks there are.
Timed is, on both sides, the wall time of whole epochs after the first one, until all ranks are done, without validation
and checkpoint. fp32 is true float32: torch would let convolutions take TF32, which NVIDIA_TF32_OVERRIDE=0 forbids on
both sides. Runs that a time limit cut off are made up by another call with the same OUT: it leaves out what is there.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bench import harness
from bench.gpu.cluster import standalone
from bench.gpu.images import write_images
from bench.train_sides import Job, product, timing, torchrun

ENVIRONMENT = {"NCCL_NVLS_ENABLE": "0", "NVIDIA_TF32_OVERRIDE": "0", "SPARK_LOCAL_IP": "127.0.0.1"}
SIDES = ("torchrun", "product")
CORES_A_RANK, MEMORY_A_RANK_GB = 4, 12
RATIO, BF16 = 0.98, 2.0
EFFICIENCY = {2: 0.99, 4: 0.98}
RANKS = (1, 2, 4)


@dataclass(frozen=True)
class Model:
    """A model, and the data that it is measured on: `rows` make an epoch, of `batch` rows a rank and step."""

    name: str
    factory: str
    shape: tuple[int, ...]
    batch: int
    rows: dict[str, int]
    """By precision: so many that an epoch takes a rank alone some 4 s on an H100, and four ranks about 1 s."""

    options: dict[str, Any]


MODELS = {
    "cnn": Model("cnn", "cnn", (28, 28), 2_048, {"fp32": 3_194_880, "bf16": 3_194_880}, {}),
    "resnet50": Model("resnet50", "bench.resnet:resnet50", (32, 32, 3), 512, {"fp32": 24_576, "bf16": 98_304}, {}),
}


@dataclass(frozen=True)
class Run:
    """What is measured at once."""

    model: str
    precision: str
    ranks: int
    side: str


def main() -> None:
    """Measure, or print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("out", type=Path)
    run.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    run.add_argument("--precisions", nargs="+", choices=["fp32", "bf16"], default=["fp32", "bf16"])
    run.add_argument("--ranks", nargs="+", type=int, default=list(RANKS))
    run.add_argument("--epochs", type=int, default=3, help="the first one warms up")
    run.add_argument("--budget-s", type=float, default=540.0, help="begin no run later than this")
    run.add_argument("--batch", type=int, help="rows of a rank and step, instead of the model's")
    run.add_argument("--rows", type=int, help="rows of an epoch, instead of the model's")
    run.add_argument("--width", type=int, help="of the ResNet, instead of 64")
    run.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    run.add_argument("--config", type=json.loads, default={}, help="keys of the product's configuration, as JSON")
    run.add_argument("--cpu", action="store_true", help="try the bench itself out where there is no GPU")
    table = commands.add_parser("table")
    table.add_argument("file", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "run":
        measure(arguments)
    else:
        lines = [json.loads(line) for line in arguments.file.read_text().splitlines()]
        sys.stdout.write(markdown(lines))


def measure(arguments: argparse.Namespace) -> None:
    """Make every run that is not in OUT yet, in an order in which each model and precision is complete early."""
    began = time.monotonic()
    gpus = 0 if arguments.cpu else torch.cuda.device_count()
    there = max(arguments.ranks) if arguments.cpu else gpus
    out = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    file = out / "runs.jsonl"
    done = {_run_of(json.loads(line)) for line in file.read_text().splitlines()} if file.exists() else set()
    for ranks in arguments.ranks:
        if ranks > there:
            _say(f"{ranks} ranks left out: there are {there} GPUs")
    fits = [ranks for ranks in arguments.ranks if ranks <= there]
    runs = [
        Run(model, precision, ranks, side)
        for model in arguments.models
        for precision in arguments.precisions
        for ranks in fits
        for side in arguments.sides
    ]
    with tempfile.TemporaryDirectory(prefix="kbit-scaling-") as name, _cluster(Path(name), there, gpus) as master:
        tables: dict[str, Path] = {}
        for run in runs:
            if run in done:
                continue
            if time.monotonic() - began > arguments.budget_s:
                _say(f"{run} and what follows left out: the budget of {arguments.budget_s:.0f} s is spent")
                return
            model = _model(arguments, run.model)
            table = _table(Path(name), model, model.rows[run.precision], tables)
            job = _job(run, model, table, master, arguments)
            record = _measured(run, model, job, Path(name), out, arguments.config)
            with file.open("a") as lines:
                lines.write(json.dumps(record) + "\n")
            _say(json.dumps(record))


def _cluster(folder: Path, ranks: int, gpus: int) -> Any:
    if not ranks:
        return nullcontext("")
    memory = f"{ranks * MEMORY_A_RANK_GB}g"
    return standalone(folder, gpus=gpus, cores=ranks * CORES_A_RANK, memory=memory, environment=ENVIRONMENT)


def _model(arguments: argparse.Namespace, name: str) -> Model:
    model = MODELS[name]
    options = {"width": arguments.width} if arguments.width and name == "resnet50" else {}
    rows = {precision: arguments.rows or rows for precision, rows in model.rows.items()}
    return replace(model, batch=arguments.batch or model.batch, rows=rows, options=options)


def _job(run: Run, model: Model, table: Path, master: str, arguments: argparse.Namespace) -> Job:
    spark = {
        "spark.executor.cores": str(CORES_A_RANK),
        "spark.cores.max": str(CORES_A_RANK * run.ranks),
        "spark.executor.memory": "3g",
    }
    if not arguments.cpu:
        spark["spark.executor.resource.gpu.amount"] = "1"
    return Job(
        table=table,
        master=master,
        ranks=run.ranks,
        epochs=arguments.epochs,
        global_batch=model.batch * run.ranks,
        precision=run.precision,
        model=model.factory,
        model_options=model.options,
        device="cpu" if arguments.cpu else "cuda",
        threads=1 if arguments.cpu else CORES_A_RANK,
        spark=spark,
        environment=ENVIRONMENT,
    )


def _measured(run: Run, model: Model, job: Job, folder: Path, out: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of a run that was made; one that failed has `error` instead of figures."""
    began = time.monotonic()
    record: dict[str, Any] = {**asdict(run), "batch": model.batch, "device": _device(job)}
    try:
        found, extra = _by_torchrun(model, job, folder) if run.side == "torchrun" else _by_product(job, folder, config)
        record |= {"rows": found.rows, "epoch_s": list(found.epoch_s), "samples_per_s": found.samples_per_s, **extra}
    except (RuntimeError, StopIteration) as error:
        record["error"] = str(error)[-2_000:]
        for log in folder.glob("work/*/*/stderr"):
            shutil.copy(log, out / f"{run.model}-{run.precision}-{run.ranks}-{log.parent.name}.txt")
    shutil.rmtree(folder / "work", ignore_errors=True)  # the logs of this run's executors
    record["wall_s"] = round(time.monotonic() - began, 1)
    return record


def _by_torchrun(model: Model, job: Job, folder: Path) -> tuple[Any, dict[str, Any]]:
    rows = model.rows[job.precision]
    data = ["--synthetic", *map(str, model.shape), "--steps", str(rows // job.global_batch)]
    return torchrun(job, folder, data), {}


def _by_product(job: Job, folder: Path, config: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Run the product; besides its timing return what tells where the time of rank 0 goes in the last epoch."""
    events = product(job, folder, data={"table": str(job.table), "resident": True}, **config)
    epoch = [event.numbers for event in events if event.kind == "train_epoch"][-1]
    phases = [event.numbers for event in events if event.kind == "train_profile" and event.rank == 0]
    extra: dict[str, Any] = {key: epoch[key] for key in ("step_p50_s", "step_p95_s", "data_wait_share")}
    extra["phases"] = {key: round(value, 4) for key, value in (phases[-1] if phases else {}).items() if "share" in key}
    return timing(job, events), {**extra, **config}


def _table(folder: Path, model: Model, rows: int, made: dict[str, Path]) -> Path:
    """Return a table of `rows` training rows; one at a time is kept on the disk."""
    path = folder / f"{model.name}-{rows}"
    if path.name not in made:
        for old in made.values():
            shutil.rmtree(old)
        made.clear()
        began = time.monotonic()
        write_images(path, model.shape, rows)
        made[path.name] = path
        _say(f"{path.name} written in {time.monotonic() - began:.1f} s")
    return path


def markdown(lines: Sequence[dict[str, Any]]) -> str:
    """Return the figures, those below their targets marked."""
    speeds = {_run_of(line): line["samples_per_s"] for line in lines if "samples_per_s" in line}
    cases = dict.fromkeys((line["model"], line["precision"], line["ranks"]) for line in lines)
    rows = [_row(speeds, *case) for case in cases]
    header = ["model", "precision", "GPUs", "torchrun, samples/s", "from Delta, samples/s"]
    header += [
        f"ratio (≥ {RATIO})",
        "scaling (≥ 0.99 on 2, 0.98 on 4)",
        "torchrun's scaling",
        f"bf16 / fp32 (≥ {BF16:g})",
    ]
    devices = ", ".join(dict.fromkeys(line["device"] for line in lines))
    batches = ", ".join(dict.fromkeys(f"{line['model']} {line['batch']:,}" for line in lines))
    note = f"{devices}; rows of a rank and step: {batches}; fp32 without TF32."
    faults = [f"- {_run_of(line)}: {line['error'].splitlines()[-1]}" for line in lines if "error" in line]
    return "\n\n".join(filter(None, [note, harness.table(header, rows), "\n".join(faults)])) + "\n"


def _row(speeds: dict[Run, float], model: str, precision: str, ranks: int) -> list[str]:
    peer, ours = (speeds.get(Run(model, precision, ranks, side)) for side in SIDES)
    alone = {side: speeds.get(Run(model, precision, 1, side)) for side in SIDES}
    single = speeds.get(Run(model, "fp32", ranks, "product")) if precision == "bf16" else None
    return [
        model,
        precision,
        str(ranks),
        _speed(peer),
        _speed(ours),
        _share(ours, peer, RATIO),
        _share(ours, _times(alone["product"], ranks), EFFICIENCY.get(ranks)) if ranks > 1 else "",
        _share(peer, _times(alone["torchrun"], ranks), None) if ranks > 1 else "",
        _share(ours, single, BF16),
    ]


def _times(speed: float | None, ranks: int) -> float | None:
    return None if speed is None else speed * ranks


def _speed(speed: float | None) -> str:
    return "" if speed is None else f"{speed:,.0f}"


def _share(part: float | None, whole: float | None, target: float | None) -> str:
    if part is None or whole is None:
        return ""
    missed = target is not None and part / whole < target
    return f"{part / whole:.3f}{' MISSED' if missed else ''}"


def _run_of(line: dict[str, Any]) -> Run:
    return Run(line["model"], line["precision"], line["ranks"], line["side"])


def _device(job: Job) -> str:
    if job.device == "cpu":
        return "CPU"
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
