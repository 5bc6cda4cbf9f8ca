"""Kill jobs at random: ``python -m tests.soak [--kills 50] [--kills-train 20] [--seed N]``.

First ingest, while records keep coming, then one training run. Prints a line for each round, each fault, and in the end
``soak: kills=… rows=… lost=… doubled=… seconds=…`` and ``soak: kills_train=… steps=… restarts=… differences=…
seconds=…``;
exit code 1 where anything is lost, doubled, different or otherwise wrong. The folder is kept then.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from kbit_spark.local import broker
from tests.fixtures.kafka import Kafka
from tests.soak.rounds import Soak, TrainSoak, run, train


def main() -> int:
    """Run both soaks; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=Soak.kills, help="of ingest")
    parser.add_argument("--kills-train", type=int, default=TrainSoak.kills, help="of one training run")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="none: another one each time")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="kbit-soak-"))
    sys.stdout.write(f"seed {arguments.seed}, folder {folder}\n")
    begin = time.monotonic()
    try:
        good = arguments.kills == 0 or ingest(Soak(arguments.kills, arguments.seed), folder / "ingest")
        if arguments.kills_train:
            good &= training(TrainSoak(arguments.kills_train, arguments.seed), folder / "training")
    except AssertionError as error:
        sys.stdout.write(f"fault: {error}\nsoak: broken off, seconds={time.monotonic() - begin:.0f}\n")
        return 1
    if not good:
        return 1
    shutil.rmtree(folder)
    return 0


def ingest(soak: Soak, folder: Path) -> bool:
    """Run the soak of ingest with a broker of its own; tell whether nothing is wrong."""
    begin = time.monotonic()
    try:
        servers = broker.start(folder / "broker").bootstrap_servers
        verdict = run(soak, Kafka(servers), folder)
    finally:
        broker.stop(folder / "broker")
    for fault in verdict.faults:
        sys.stdout.write(f"fault: {fault}\n")
    sys.stdout.write(
        f"soak: kills={soak.kills} rows={verdict.rows} lost={verdict.lost} doubled={verdict.doubled} "
        f"seconds={time.monotonic() - begin:.0f}\n"
    )
    return not verdict.faults


def training(soak: TrainSoak, folder: Path) -> bool:
    """Run the soak of training; tell whether nothing is wrong."""
    begin = time.monotonic()
    verdict = train(soak, folder)
    sys.stdout.write(
        f"soak: kills_train={soak.kills} steps={verdict.steps} restarts={verdict.restarts} "
        f"differences={verdict.differences} seconds={time.monotonic() - begin:.0f}\n"
    )
    return verdict.differences == 0


if __name__ == "__main__":
    sys.exit(main())
