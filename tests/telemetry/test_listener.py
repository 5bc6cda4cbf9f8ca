import contextlib
from collections.abc import Callable
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from kbit_spark.events import Event
from tests.telemetry.conftest import read_lines

Collect = Callable[[Callable[[], object], str | None], list[Event]]


def test_a_shuffle_is_told_with_its_bytes_and_scope(
    watched: SparkSession, stage_events: Collect, listener_file: Path
) -> None:
    # 50,000 random UUIDs: at least their 16 bytes of entropy, at most their 36 characters and the row around them.
    frame = watched.range(0, 50_000, 1, 3).selectExpr("uuid() AS id").repartition(2)
    events = stage_events(lambda: frame.write.format("noop").mode("overwrite").save(), "epoch=7")
    stages = [e for e in events if e.kind == "spark_stage" and e.scope == "epoch=7"]
    writer = max(stages, key=lambda e: e.numbers["shuffle_write_bytes"])
    assert writer.numbers["tasks"] == 3
    assert writer.numbers["shuffle_write_bytes"] > 16 * 50_000
    assert writer.numbers["shuffle_write_bytes"] < 64 * 50_000
    assert sum(e.numbers["shuffle_read_bytes"] for e in stages) == sum(e.numbers["shuffle_write_bytes"] for e in stages)
    assert 0 < writer.numbers["task_p50_s"] <= writer.numbers["task_max_s"] <= writer.numbers["duration_s"]
    assert writer.numbers["cpu_time_s"] > 0
    assert any(line["scope"] == "epoch=7" for line in read_lines(listener_file))


def test_a_failed_task_is_told_with_the_python_error(watched: SparkSession, stage_events: Collect) -> None:
    def fail(value: int) -> int:
        msg = f'no "{value}" here'
        raise ValueError(msg)

    def work() -> None:
        with contextlib.suppress(Py4JJavaError):
            watched.sparkContext.parallelize([4], 1).map(fail).collect()

    events = stage_events(work, "batch=1")
    failures = [e for e in events if e.kind == "spark_task_failure"]
    assert [e.numbers["attempt"] for e in failures] == [0, 1]
    assert all(e.labels["reason"] == 'ValueError: no "4" here' for e in failures)
    (stage,) = [e for e in events if e.kind == "spark_stage"]
    assert stage.numbers["failed_tasks"] == 2
    assert stage.labels["reason"]


def test_the_sinks_own_work_is_left_out(watched: SparkSession, stage_events: Collect) -> None:
    assert stage_events(lambda: watched.range(10).count(), "telemetry") == []


def test_a_stream_gives_progress_and_batch_scopes(watched: SparkSession, stage_events: Collect, tmp_path: Path) -> None:
    def work() -> None:
        watched.range(100).write.parquet(str(tmp_path / "in"))
        stream = watched.readStream.schema("id long").parquet(str(tmp_path / "in"))
        writer = stream.writeStream.foreachBatch(lambda batch, _: batch.repartition(2).count())
        writer.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True).start().awaitTermination()

    # No scope: a thread that starts a query passes its local properties on, and a scope of the job wins.
    events = stage_events(work, None)
    progress = [e for e in events if e.kind == "stream_progress"]
    assert progress[0].numbers["input_rows"] >= 100
    assert progress[0].numbers["trigger_s"] >= progress[0].numbers["add_batch_s"] > 0
    assert any(e.scope == "batch=0" for e in events if e.kind == "spark_stage")
