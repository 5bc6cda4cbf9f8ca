"""The ingest job: Kafka -> decode -> samples and rejected, one ledger entry a batch."""

from __future__ import annotations

from contextlib import closing

from kbit_spark.batch_writer import BatchWriter
from kbit_spark.codecs.decoder import value_type
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.config.load import dump
from kbit_spark.epoch_guard import check_continuity
from kbit_spark.ingest_events import loss_event
from kbit_spark.session import session_given, spark_session
from kbit_spark.sources.broker import check_topics
from kbit_spark.sources.kafka import check_options, read_stream
from kbit_spark.sources.query import Query
from kbit_spark.tables.dead_letters import ensure_rejected
from kbit_spark.tables.samples import (
    ensure_samples,
    parquet_settings,
)
from kbit_spark.telemetry.hub import Telemetry


def run(config: IngestConfig) -> None:
    """Read the topics until they are drained (`available_now`) or a signal asks to stop.

    Raises:
        KbitError: see the stages; the tables are as they were after the last whole batch.
    """
    unjudged = check_topics(config.kafka)
    given = session_given()
    spark = spark_session(f"kbit ingest {config.stream_id}", settings(config))
    try:
        check_options(spark, config.kafka, unjudged)
        with Telemetry.open(config.telemetry, job="ingest", spark=spark, config_text=dump(config)) as telemetry:
            ensure_samples(spark, config.tables.samples, value_type(config.fields), may_lack=config.tables.grows)
            ensure_rejected(spark, config.tables.rejected)
            # before the check: it notices who else writes from now on
            with closing(BatchWriter(spark, config, telemetry)) as writer:
                start = check_continuity(spark, config, writer.take_over)
                if start.lost:
                    telemetry.emit(loss_event(start.lost))
                writer.continue_from(start)
                query = Query(config.trigger, config.checkpoint_dir)
                query.run(read_stream(spark, config.kafka, start.offsets), writer.write)
    finally:
        if not given:
            spark.stop()


def settings(config: IngestConfig) -> dict[str, str]:
    """Return the Spark settings of the job; the user's own win."""
    tensors = [field.name for field in config.fields if field.tensor is not None]
    return {**parquet_settings(tensors, len(config.fields)), **config.spark}
