"""Draws the README's picture of the GPU ingest: ``python -m bench.gpu.chart FIGURES.jsonl docs/gpu-ingest.svg``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median

import matplotlib.pyplot as plt

from bench.gpu.ingest import SHAPES

ENGINES = {"gpu": "kbit_spark, GPU", "cpu": "kbit_spark, CPU", "builtin": "Spark's functions, CPU"}
COLORS = ("#76b900", "#4878a8", "#b0b0b0")


def main() -> None:
    """Draw rows/s of the largest batches, one group of bars a payload."""
    figures = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    rates = [f for f in figures if f.get("batch_rows") == 400_000]
    names = [name for name in SHAPES if any(f["shape"] == name for f in rates)]
    _, axes = plt.subplots(figsize=(8, 3.2))
    for offset, (engine, label) in enumerate(ENGINES.items()):
        values = [
            median([f["rows_per_s"] for f in rates if (f["engine"], f["shape"]) == (engine, name)] or [0])
            for name in names
        ]
        places = [index + 0.27 * (offset - 1) for index in range(len(names))]
        axes.bar(places, [value / 1000 for value in values], 0.25, label=label, color=COLORS[offset])
    axes.set_xticks(range(len(names)), [SHAPES[name].replace(", ", "\n") for name in names])
    axes.set_ylabel("thousand rows/s")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    plt.tight_layout()
    plt.savefig(sys.argv[2])


if __name__ == "__main__":
    main()
