"""The training loader, Delta to CPU tensors, beside loaders of peers and a bare scan.

    kbit bench loader [--rounds 5] [--json]

A figure is rows per CPU second: CPU time of all threads and child processes of the side, over one pass. A row counts
when it stands in a batch of CPU tensors of the column's own dtype; making floats of uint8 belongs to the model's device
and counts on no side. The scans read the same columns of the same row groups into Arrow and make no tensors. Both
tables lie in the page cache. Sides that share a table take turns; a ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import WriterProperties, write_deltalake

from bench import harness, loader_distributor, loader_peers
from bench.loader_sides import Work
from bench.tables import samples_schema
from bench.train import write_table
from kbit_spark.local.digits import digits
from kbit_spark.schemas.fields import Tensor
from kbit_spark.tables.snapshot import resolve

RESULTS = Path(__file__).parent / "results"
DIGITS, FLOATS = 1_200_000, 16_000_000
PEER_FILES = 3
"""Files of digits, 18,000 rows each, that slow peers read in a pass."""

DISTRIBUTOR_DIGITS, DISTRIBUTOR_FLOATS = 10_000, 100_000
SCANS = ("arrow_file", "arrow_dataset")
TARGETS = {"arrow_file": 0.8, "arrow_dataset": 0.8, "petastorm": 3.0, "streaming": 3.0, "1 workers": 100.0}
NAMES = {
    "kbit": "kbit_spark, seeded shuffle",
    "arrow_file": "scan, pyarrow.parquet, one thread",
    "arrow_dataset": "scan, pyarrow.dataset",
    "petastorm": "Petastorm, BatchedDataLoader",
    "streaming": "mosaicml-streaming",
    "1 workers": "TorchDistributor, its default of one worker process",
    "0 workers": "TorchDistributor, no worker process",
}


@dataclass(frozen=True)
class Figure:
    """One side on one table; `ratio` is how many times its rate we reach."""

    rows: str
    side: str
    rows_per_cpu_s: float
    ratio: float
    target: float | None


def main() -> None:
    """Run all sides and print a markdown table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--scans", action="store_true", help="only the scans, printed as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kbit-bench-") as name:
        folder = Path(name)
        works = {"28 x 28 uint8": _digits(folder), "8 float32": _floats(folder)}
        figures, refusal = [], ""
        for rows, work in works.items():
            figures += _turns(rows, work, SCANS, arguments.rounds)
        if not arguments.scans:
            figures += _peers(works["28 x 28 uint8"], arguments.rounds)
            others, refusal = _distributor(folder, works, figures)
            figures += others
    documents = {"figures": [asdict(figure) for figure in figures], "binary_in_torch_distributor": refusal}
    if arguments.scans or arguments.json:
        sys.stdout.write(json.dumps(documents, indent=2) + "\n")
    if arguments.scans:
        return
    markdown = _markdown(figures, refusal, arguments.rounds)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "loader.md").write_text(markdown)
    if not arguments.json:
        sys.stdout.write(markdown)


def _digits(folder: Path) -> Work:
    write_table(folder / "digits", DIGITS)
    return _work(folder, "digits", "image", Tensor(dtype="uint8", shape=(28, 28)), batch=128, window=8_192)


def _floats(folder: Path) -> Work:
    """Write rows of 8 floats as a tensor column; a window has more rows because they are small."""
    tensor = Tensor(dtype="float32", shape=(8,))
    schema = samples_schema("features", tensor)
    random = np.random.default_rng(0)
    chunk = FLOATS // 8
    for _ in range(8):
        values = random.normal(size=(chunk, 8)).astype(np.float32)
        columns = [
            pa.array(values.view("V32").ravel().tolist(), pa.binary()),
            pa.array(random.integers(0, 10, chunk), pa.int32()),
            pa.array(["train"] * chunk),
        ]
        write_deltalake(
            str(folder / "floats"),
            pa.table(columns, schema=schema),
            mode="append",
            partition_by=["_split"],
            writer_properties=WriterProperties(max_row_group_size=50_000, compression="SNAPPY"),
        )
    return _work(folder, "floats", "features", tensor, batch=1_024, window=65_536)


def _work(folder: Path, table: str, column: str, tensor: Tensor, batch: int, window: int) -> Work:
    files = [file.path for file in resolve(str(folder / table)).of_split("train")]
    copies = str(folder / "copies")
    return Work(str(folder / table), files, column, tensor.dtype, list(tensor.shape), batch, window, copies)


def _turns(rows: str, work: Work, peers: Sequence[str], rounds: int) -> list[Figure]:
    """Let the loader and its peers take turns over the same files."""
    rates: dict[str, list[float]] = {}
    with ExitStack() as stack:
        sides = {side: stack.enter_context(_side(side, work)) for side in ("kbit", *peers)}
        for _ in range(rounds):
            for side, process in sides.items():
                rates.setdefault(side, []).append(_rate(process))
    ratios = {side: median(k / p for k, p in zip(rates["kbit"], rates[side], strict=True)) for side in rates}
    return [Figure(rows, side, median(rates[side]), ratios[side], TARGETS.get(side)) for side in rates]


def _peers(work: Work, rounds: int) -> list[Figure]:
    """Return Petastorm's and mosaicml-streaming's figures on a few of the files, ours on all of them beside each."""
    figures = _turns("28 x 28 uint8", replace(work, files=work.files[:PEER_FILES]), ("petastorm", "streaming"), rounds)
    return [figure for figure in figures if figure.side != "kbit"]


@contextmanager
def _side(side: str, work: Work) -> Iterator[subprocess.Popen[str]]:
    python = loader_peers.interpreter(side) if side in loader_peers.PACKAGES else Path(sys.executable)
    root = Path(__file__).parents[1]
    command = [str(python), str(root / "bench/loader_sides.py"), side, json.dumps(asdict(work))]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=environment) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            msg = f"the side {side} does not start; its output stands above"
            raise RuntimeError(msg)
        yield process
        assert process.stdin is not None
        process.stdin.close()


def _rate(process: subprocess.Popen[str]) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    return float(answer["rows"] / answer["cpu_s"])


def _distributor(folder: Path, works: dict[str, Work], figures: list[Figure]) -> tuple[list[Figure], str]:
    """Return TorchDistributor's figures, and what it says to a binary column."""
    ours = {figure.rows: figure.rows_per_cpu_s for figure in figures if figure.side == "kbit"}
    _distributor_tables(folder)
    spark = loader_distributor.session()
    try:
        refusal = loader_distributor.refusal(spark.read.parquet(*works["28 x 28 uint8"].files)) or ""
        found = []
        for rows, work in works.items():
            frame = spark.read.parquet(str(folder / f"{Path(work.table).name}.parquet"))
            rates = loader_distributor.rate(frame, work.batch, passes=3)
            found += [Figure(rows, side, rate, ours[rows] / rate, TARGETS.get(side)) for side, rate in rates.items()]
    finally:
        spark.stop()
    return found, refusal


def _distributor_tables(folder: Path) -> None:
    """Write rows as TorchDistributor can load them: images as arrays of int, floats as columns."""
    some = list(digits(DISTRIBUTOR_DIGITS))
    images = pa.array([digit.image.reshape(-1).astype(np.int32) for digit in some], pa.list_(pa.int32()))
    labels = pa.array([digit.label for digit in some], pa.int32())
    pq.write_table(pa.table({"image": images, "label": labels}), folder / "digits.parquet")
    random = np.random.default_rng(0)
    columns = {f"f{n}": random.normal(size=DISTRIBUTOR_FLOATS).astype(np.float32) for n in range(8)}
    columns["label"] = random.integers(0, 10, DISTRIBUTOR_FLOATS).astype(np.int32)
    pq.write_table(pa.table(columns), folder / "floats.parquet")


def _markdown(figures: list[Figure], refusal: str, rounds: int) -> str:
    header = ["a row", "side", "rows per CPU second", "kbit_spark over it", "target"]
    order = sorted(figures, key=lambda figure: figure.rows)
    rows = [
        [
            figure.rows,
            NAMES[figure.side],
            f"{figure.rows_per_cpu_s:,.0f}",
            f"{figure.ratio:.2f}" if figure.ratio < 10 else f"{figure.ratio:,.0f}",
            f"≥ {figure.target:g}" if figure.target else "",
        ]
        for figure in order
    ]
    when = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    versions = "; ".join(", ".join(packages).replace("==", " ") for packages in loader_peers.PACKAGES.values())
    note = f"{when}, one torch thread, medians of {rounds} rounds, all files in the page cache. {DIGITS:,} digits "
    note += (
        f"(nine tenths of them for training) in batches of 128 from windows of 8,192; {FLOATS:,} rows of 8 floats in "
    )
    note += (
        f"batches of 1,024 from windows of 65,536. Petastorm and mosaicml-streaming read {PEER_FILES} of the files, "
    )
    note += "the latter from a copy in its own format. TorchDistributor is measured inside `_train_on_dataframe` "
    note += f"on {DISTRIBUTOR_DIGITS:,} digits as arrays of int and "
    note += f"{DISTRIBUTOR_FLOATS:,} rows of 8 float columns; to a binary column it says: {' '.join(refusal.split())}"
    note += f"\n\nVersions: pyarrow {pa.__version__}, {_version('torch')}, {_version('pyspark')}; {versions}."
    return f"# The training loader, Delta to CPU tensors\n\n{note}\n\n{harness.table(header, rows)}\n"


def _version(package: str) -> str:
    return f"{package} {version(package)}"


if __name__ == "__main__":
    main()
