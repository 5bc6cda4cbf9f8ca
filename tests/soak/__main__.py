"""Kill the jobs at random while records keep coming: ``python -m tests.soak [--kills 50] [--seed N]``.

Prints a line for each round, each fault, and in the end ``soak: kills=… rows=… lost=… doubled=… seconds=…``; exit code
1 where anything is lost, doubled or otherwise wrong. The folder is kept then.
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
from tests.soak.rounds import Soak, run


def main() -> int:
    """Run the soak with a broker of its own; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=Soak.kills)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="none: another one each time")
    arguments = parser.parse_args()
    soak = Soak(kills=arguments.kills, seed=arguments.seed)
    folder = Path(tempfile.mkdtemp(prefix="kbit-soak-"))
    begin = time.monotonic()
    sys.stdout.write(f"seed {soak.seed}, folder {folder}\n")
    try:
        servers = broker.start(folder / "broker").bootstrap_servers
        verdict = run(soak, Kafka(servers), folder)
    except AssertionError as error:
        sys.stdout.write(f"fault: {error}\nsoak: broken off, seconds={time.monotonic() - begin:.0f}\n")
        return 1
    finally:
        broker.stop(folder / "broker")
    for fault in verdict.faults:
        sys.stdout.write(f"fault: {fault}\n")
    sys.stdout.write(
        f"soak: kills={soak.kills} rows={verdict.rows} lost={verdict.lost} doubled={verdict.doubled} "
        f"seconds={time.monotonic() - begin:.0f}\n"
    )
    if verdict.faults:
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
