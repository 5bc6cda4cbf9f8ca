"""The soak: records come all the time, jobs are killed at random, and in the end every record must be there once."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.fixtures.jobs import ingest_data
from tests.fixtures.kafka import Kafka
from tests.soak.traffic import Traffic
from tests.soak.verdict import Verdict, judge
from tests.soak.victims import Ingest, Victim


@dataclass(frozen=True)
class Soak:
    """What is done; the same seed gives the same kills, as far as the machine is as fast."""

    kills: int = 50
    seed: int = 0
    rate: float = 25.0
    """Records per second."""

    batch_rows: int = 200


def run(soak: Soak, kafka: Kafka, folder: Path) -> Verdict:
    """Strike `soak.kills` times, then let everything come to its end, and judge.

    Raises:
        AssertionError: a job ended by itself or got nowhere, or left processes behind.
    """
    topics = {kafka.topic("soak-json", 2): "json", kafka.topic("soak-avro", 2): "avro"}
    data = ingest_data(folder, kafka.bootstrap_servers, topics, maintenance={"optimize_every_batches": 7})
    data["kafka"]["max_offsets_per_trigger"] = soak.batch_rows
    rounds: list[Victim] = [Ingest(folder, data, soak.seed)] * soak.kills
    victims = list(dict.fromkeys(rounds))
    begin = time.monotonic()
    try:
        with Traffic(kafka.bootstrap_servers, topics, soak.rate, soak.seed) as traffic:
            for number, victim in enumerate(rounds, 1):
                struck = victim.strike()
                _say(f"round {number}/{soak.kills}: {victim.name} {struck} ({time.monotonic() - begin:.0f} s)")
            traffic.stop()
            for victim in victims:
                victim.finish()
    finally:
        for victim in victims:
            victim.close()
    return judge(folder, traffic.landed)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
