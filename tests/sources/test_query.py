from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from kbit_spark.config.ingest import TriggerConfig
from kbit_spark.errors import RunError
from kbit_spark.sources.query import Query

RENAMED = "[FAILED_RENAME_PATH] Failed to rename file:/c/offsets/.1.tmp as destination already exists."


@pytest.mark.parametrize("text", ["[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.", RENAMED])
def test_a_checkpoint_that_another_process_writes_is_named_whenever_the_two_meet(text: str, tmp_path: Path) -> None:
    query = Query(TriggerConfig(available_now=True), str(tmp_path))
    with pytest.raises(RunError, match=f"another process writes to the checkpoint {tmp_path}") as told:
        query._explain(StreamingQueryException(text))
    assert "let only one of them run" in str(told.value.hint)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("KafkaIllegalStateException: Some data may have been lost because", "start again: the guard tells"),
        ("[KAFKA_DATA_LOSS.START_OFFSET_RESET] Starting offset for t-0 was 5", "start again: the guard tells"),
        ("OffsetOutOfRangeException: Fetch position 3 is out of range", "start again: the guard tells"),
        ("SparkException: Task failed", "nothing is lost: the batch runs again"),
    ],
)
def test_what_kafka_no_longer_has_is_never_called_nothing(text: str, hint: str, tmp_path: Path) -> None:
    query = Query(TriggerConfig(available_now=True), str(tmp_path))
    with pytest.raises(RunError, match="the stream stopped") as told:
        query._explain(StreamingQueryException(text))
    assert str(told.value.hint).startswith(hint)
