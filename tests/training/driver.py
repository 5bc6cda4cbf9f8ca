"""A driver of its own for tests of the barrier stage: one Spark application, several runs.

Reads requests from stdin, one JSON configuration a line, and answers with one JSON line each. `cancel: true` besides
cancels all of Spark's jobs at the first window.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from kbit_spark import train
from kbit_spark.config.train import TrainConfig
from kbit_spark.errors import KbitError
from kbit_spark.events import Event
from kbit_spark.session import spark_session
from tests.fixtures.jobs import BRIEF


class Recorder:
    """Keeps events; tells each to the test at once."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.on_window: Callable[[], None] | None = None

    def emit(self, event: Event) -> None:
        self.events.append(event.to_dict())
        if event.kind == "train_window" and self.on_window is not None:
            act, self.on_window = self.on_window, None
            threading.Thread(target=act).start()


def main(master: str) -> None:
    settings = {
        "spark.master": master,
        "spark.executor.memory": "1g",
        "spark.executor.extraJavaOptions": BRIEF,
        "spark.driver.host": "127.0.0.1",
    }
    spark = spark_session("kbit-train", {**train.SETTINGS, **settings})
    spark.sparkContext.setLogLevel("ERROR")
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        recorder, began = Recorder(), time.monotonic()
        answer: dict[str, Any] = {}
        try:
            data = json.loads(line)
            if data.pop("cancel", False):
                recorder.on_window = spark.sparkContext.cancelAllJobs
            config = TrainConfig.model_validate(data)
            snapshot, resume = train.plan(config)
            answer["outcome"] = asdict(train.fit(spark, config, snapshot, resume, recorder))
        except KbitError as error:
            answer["error"] = {"type": type(error).__name__, "message": error.message, "hint": error.hint}
        except Exception as error:
            answer["error"] = {"type": type(error).__name__, "message": repr(error), "hint": ""}
        print(
            json.dumps(
                {**answer, "events": recorder.events, "seconds": time.monotonic() - began, "ended": time.time()}
            ),
            flush=True,
        )
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
