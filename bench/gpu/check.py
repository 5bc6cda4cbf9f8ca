"""Runs every case of `bench.gpu.corpus` on the device and holds it against the CPU decoder.

    python -m bench.gpu.check FOLDER --classpath JARS --mutants 1000000

Prints a line a case that differs, and one of sums: rows, differences, rows that the CPU had to decode.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

BATCH = 200_000


def main() -> None:
    """Run the cases; exit 1 where a row differs or the program fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--classpath", required=True)
    parser.add_argument("--mutants", type=int, default=1_000_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--at-once", type=int, default=8, help="cases")
    arguments = parser.parse_args()
    folders = sorted(path for path in arguments.folder.iterdir() if path.is_dir() and arguments.only in path.name)
    folders.sort(key=lambda path: not path.name.startswith("fuzz-"))  # these take longest
    with ProcessPoolExecutor(arguments.at_once) as pool:  # whose mutants take Python's time
        results = list(pool.map(check, folders, repeat(arguments.classpath), repeat(arguments.mutants)))
    for result in results:
        if result["code"] != 0 or result["case"].startswith("fuzz-"):
            print(json.dumps(result))
    summaries = [result["summary"] for result in results]
    sums = {
        key: sum(summary.get(key, 0) for summary in summaries)
        for key in ("rows", "refereed", "disputes", "differences")
    }
    failed = [result["case"] for result in results if result["code"] != 0]
    print(json.dumps({"cases": len(results), "failed": failed, **sums}))
    sys.exit(1 if failed else 0)


def check(folder: Path, classpath: str, count: int) -> dict[str, Any]:
    """Run one case."""
    payloads, batch = folder / "payloads.hex", []
    begin = time.time()
    with tempfile.TemporaryDirectory() as temporary:
        if folder.name.startswith("fuzz-"):
            payloads, batch = Path(temporary) / "mutants.hex", [str(BATCH)]
            write_mutants((folder / "payloads.hex").read_text().split(), count, payloads)
        command = ["java", "-Xmx8g", "--add-modules=jdk.incubator.vector", "-cp", classpath, "kbit.gpu.Check"]
        command += [str(payloads), str(folder / "plan.json"), str(folder / "program.json"), *batch]
        ran = subprocess.run(command, capture_output=True, text=True)
    lines = ran.stdout.splitlines()
    try:
        summary = json.loads(lines[-1])
    except (IndexError, ValueError):
        summary = {}
    result = {"case": folder.name, "code": ran.returncode, "seconds": round(time.time() - begin, 1), "summary": summary}
    if ran.returncode != 0:
        bad = [line for line in lines[:-1] if '"same":false' in line]
        result |= {"first": (bad or lines)[:3], "stderr": ran.stderr[-1500:]}
    return result


def write_mutants(seeds: list[str], count: int, file: Path) -> None:
    """Write `count` payloads: the seeds, and changes of them."""
    rng = random.Random(1)
    whole = [bytes.fromhex(seed) for seed in seeds]
    with file.open("w") as out:
        for index in range(count):
            payload = bytearray(whole[index % len(whole)])
            for _ in range(0 if index < len(whole) else rng.randrange(1, 3)):
                _change(payload, rng)
            out.write(payload.hex() + "\n")


def _change(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data)) if data else 0
    match rng.randrange(5):
        case 0 if data:
            data[at] = rng.randrange(256)
        case 1 if data:
            data[at] ^= 1 << rng.randrange(8)
        case 2:
            data[at:at] = rng.randbytes(rng.randrange(1, 11))
        case 3:
            del data[at : at + rng.randrange(1, 4)]
        case _:
            del data[at:]


if __name__ == "__main__":
    main()
