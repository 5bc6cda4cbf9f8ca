"""What became of the records: the tables against what the broker took, and against the project's own ledger."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable

from tests.fixtures.jobs import ROOT
from tests.soak.traffic import Place

HOMES = {"samples": ("good", "_"), "rejected": ("bad", "")}
"""Table to the kind of records that belong there, and the prefix of its columns."""


@dataclass(frozen=True)
class Verdict:
    """Counts of records, and each fault in words."""

    rows: int
    """Rows in both tables."""

    lost: int
    """Records that are not where they belong."""

    doubled: int
    """Rows beyond the one that a record has, those of records that never were included."""

    faults: tuple[str, ...]


def judge(folder: Path, landed: Mapping[str, Set[Place]]) -> Verdict:
    """Compare the tables in `folder`, row by row, with the records that the broker took.

    Args:
        folder: holds `samples` and `rejected`.
        landed: kind of record to the places of such records.
    """
    rows, lost, doubled, faults = 0, 0, 0, [*_ledger_faults(folder)]
    for table, (kind, prefix) in HOMES.items():
        found = _places(folder / table, prefix)
        missing = landed[kind] - found.keys()
        twice = {place: count - 1 for place, count in found.items() if count > 1}
        strays = {place: count for place, count in found.items() if place not in landed[kind]}
        for what, places in (("lost", missing), ("more than once", twice), ("of no such record", strays)):
            if places:
                faults.append(f"{table}: {len(places)} {what}, e.g. {min(places)}")
        rows, lost = rows + found.total(), lost + len(missing)
        doubled += sum(twice.values()) + len(strays)
    return Verdict(rows, lost, doubled, tuple(faults))


def _places(table: Path, prefix: str) -> Counter[Place]:
    names = [f"{prefix}{name}" for name in ("topic", "partition", "offset")]
    columns = DeltaTable(str(table)).to_pyarrow_table(columns=names)
    return Counter(zip(*(columns[name].to_pylist() for name in names), strict=True))


def _ledger_faults(folder: Path) -> list[str]:
    tables = [str(folder / "samples"), "--rejected", str(folder / "rejected")]
    command = [sys.executable, "-m", "kbit_spark.cli.main", "ledger", "verify", *tables, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    try:
        return [f"ledger: {fault}" for fault in json.loads(done.stdout)["faults"]]
    except (ValueError, KeyError):
        return [f"kbit ledger verify ended with {done.returncode}: {done.stderr.strip()}"]
