"""Configuration of the ingest job: which topics become which table."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from kbit_spark.config.kafka import KafkaConfig
from kbit_spark.config.options import Options
from kbit_spark.config.paths import DataPath
from kbit_spark.config.telemetry import TelemetryConfig
from kbit_spark.schemas.base import Frozen
from kbit_spark.schemas.fields import FieldSpec


class TriggerConfig(Frozen):
    """When a micro-batch starts: once for all that is there (`available_now`), or every `interval_s` seconds."""

    available_now: bool = False
    interval_s: float = Field(default=10.0, ge=0)


class SplitConfig(Frozen):
    """Shares of the hold-outs; a record's split is a hash of its key, so it never changes and copies stay together."""

    validation: float = Field(default=0.1, ge=0, lt=1)
    test: float = Field(default=0.1, ge=0, lt=1)
    salt: str = ""
    """Changes the split of every key; leave it alone once a model was trained."""

    @model_validator(mode="after")
    def _some_training(self) -> SplitConfig:
        if self.validation + self.test >= 1:
            msg = "validation + test must leave a share for training"
            raise ValueError(msg)
        return self


class DecodeConfig(Frozen):
    """Which engine decodes; the GPU is one only in a session with RAPIDS (docs/gpu.md)."""

    placement: Literal["auto", "gpu", "cpu"] = "auto"
    """Auto takes the faster one, by what it measures in the stream itself."""

    shadow_fraction: float = Field(default=0.0, ge=0, le=1)
    """Share of the records that the other engine decodes as well, to count differences; costs another read of them."""


class TablesConfig(Frozen):
    """Paths of the Delta tables that the stream writes."""

    samples: DataPath
    rejected: DataPath
    evolve: Literal["none", "added-fields"] = "none"
    """What may change in `samples` while it is written. added-fields: it gains a nullable column for each entry of
    `fields` that it lacks, and for each field that a schema of the registry has and no entry reads."""

    @property
    def grows(self) -> bool:
        """Whether `samples` may gain columns."""
        return self.evolve == "added-fields"


class GuardConfig(Frozen):
    """What may happen where checkpoint, topics and table do not continue each other; nothing of it while they do."""

    rebase: bool = False
    """Begin a new checkpoint exactly where the table ends; the old one is set aside."""

    accept_loss: bool = False
    """Go on although records are gone before they were read: skip them, and write down which."""


class MaintenanceConfig(Frozen):
    """Table care beside the stream, counted in batches of the checkpoint."""

    SHORTEST_RETENTION_HOURS: ClassVar[float] = 1.0

    optimize_every_batches: int | None = Field(default=100, ge=1)
    """Batches between compactions; none: never."""

    vacuum_every_batches: int | None = Field(default=None, ge=1)
    """Batches between deletions of files that left the tables; none: never."""

    target_file_bytes: int = Field(default=128 * 1024 * 1024, ge=1024 * 1024)
    """Size of a compacted file; files of at least half of it are left alone."""

    retention_hours: float | None = Field(default=None, ge=SHORTEST_RETENTION_HOURS)
    """Age of the files that a vacuum deletes; none: the table's delta.deletedFileRetentionDuration, never less."""


class IngestConfig(Frozen):
    """The ingest job."""

    stream_id: str = Field(pattern=r"^[A-Za-z0-9._-]+$")
    """Stable name of the stream: it is part of the transaction id in every commit."""

    kafka: KafkaConfig
    fields: tuple[FieldSpec, ...] = Field(min_length=1)
    tables: TablesConfig
    checkpoint_dir: DataPath
    trigger: TriggerConfig = TriggerConfig()
    guard: GuardConfig = GuardConfig()
    decode: DecodeConfig = DecodeConfig()
    split: SplitConfig = SplitConfig()
    maintenance: MaintenanceConfig = MaintenanceConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    spark: Options = Field(default_factory=dict)
    """Spark settings that win over the defaults file; what the run keeps of them has *** for secrets."""

    @field_validator("fields")
    @classmethod
    def _different(cls, fields: tuple[FieldSpec, ...]) -> tuple[FieldSpec, ...]:
        names = [field.name.lower() for field in fields]  # Spark's names do not tell cases apart
        if twice := [field.name for place, field in enumerate(fields) if names.index(names[place]) < place]:
            msg = f"listed twice, if only in another case: {', '.join(twice)}"
            raise ValueError(msg)
        return fields
