from __future__ import annotations

from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from kbit_spark.config.experiment import ExperimentConfig
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.config.kafka import KafkaConfig
from kbit_spark.config.load import dump, load, validate
from kbit_spark.config.options import flatten
from kbit_spark.config.secrets import secrets_in
from kbit_spark.config.train import TrainConfig
from kbit_spark.errors import UsageError
from kbit_spark.schemas.base import Frozen

SAMPLES = Path(__file__).parents[2] / "kbit_spark/cli/samples"
INGEST = SAMPLES / "ingest.yaml"
TRAIN = SAMPLES / "train.yaml"


def ingest(*overrides: str) -> IngestConfig:
    return load(IngestConfig, INGEST, overrides)


def train(*overrides: str) -> TrainConfig:
    return load(TrainConfig, TRAIN, overrides)


def fault(*overrides: str) -> str:
    with pytest.raises(UsageError) as caught:
        ingest(*overrides)
    return caught.value.message


# --- samples


def unset(model: BaseModel) -> list[str]:
    """Return the keys of `model`, nested ones included, that were not given."""
    missing = [name for name in type(model).model_fields if name not in model.model_fields_set]
    for name in model.model_fields_set:
        value = getattr(model, name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, BaseModel):
                missing += [f"{name}.{inner}" for inner in unset(item)]
    return missing


def other_than_default(model: BaseModel) -> list[str]:
    """Return the optional keys of `model` whose value is not the default."""
    found = []
    for name, info in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            found += [f"{name}.{inner}" for inner in other_than_default(value)]
        elif not info.is_required() and value != info.get_default(call_default_factory=True, validated_data={}):
            found.append(name)
    return found


def test_the_samples_show_every_key_with_its_default():
    for sample in (ingest(), train()):
        # a field is of a type or a tensor; both samples stand beside each other
        assert [key for key in unset(sample) if key not in ("fields.type", "fields.tensor")] == []
        assert other_than_default(sample) == []


def test_a_dumped_configuration_loads_to_the_same(tmp_path: Path):
    for sample in (ingest(), train()):
        file = tmp_path / "again.yaml"
        file.write_text(dump(sample), encoding="utf-8")
        assert load(type(sample), file) == sample


# --- overrides


def test_overrides_reach_into_lists():
    config = ingest("kafka.topics[0].name=other", "fields.0.tensor.shape.1=29", "fields[0].tensor.dtype=int16")
    assert config.kafka.topics[0].name == "other"
    assert config.kafka.topics[1].name == "digits-avro"
    tensor = config.fields[0].tensor
    assert tensor is not None
    assert (tensor.dtype, tensor.shape) == ("int16", (28, 29))


def test_the_last_override_wins():
    assert train("epochs=3", "epochs=4").epochs == 4


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("max_restarts=0", 0),
        ("data.version=null", None),
        ("data.version=7", 7),
        ("optimizer.learning_rate=1e-4", 1e-4),
        ("optimizer.name=sgd", "sgd"),
        ("model=package.module:make", "package.module:make"),
        ("model_options={hidden: [8, 4]}", {"hidden": [8, 4]}),
        ("telemetry.csv=true", True),
    ],
)
def test_override_types(override: str, value: object):
    found: Any = train(override)
    for part in override.partition("=")[0].split("."):
        found = getattr(found, part)
    assert found == value
    assert type(found) is type(value)


def test_a_value_keeps_its_commas_and_equals_signs():
    config = ingest("kafka.bootstrap_servers=a:1,b:2", "split.salt=x=y")
    assert config.kafka.bootstrap_servers == "a:1,b:2"
    assert config.split.salt == "x=y"


@pytest.mark.parametrize("override", ["nonsense", "=3", "kafka.topics[7].name=x", "tables.samples=[1"])
def test_a_bad_override_is_quoted(override: str):
    assert repr(override) in fault(override)


# --- faults


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("trigger.interval=3", "unknown key trigger.interval; did you mean interval_s?"),
        ("kafka.topics[1].formt=json", "unknown key kafka.topics[1].formt; did you mean format?"),
        ("fields[0].tensor.dtyp=uint8", "unknown key fields[0].tensor.dtyp; did you mean dtype?"),
        ("telemetry.metric_table=x", "did you mean metrics_table?"),
        ("zzzz=1", "unknown key zzzz; known: stream_id, kafka,"),
        ("trigger.interval_s=soon", "trigger.interval_s: "),
        ("trigger.interval_s=-1", "greater than or equal to 0"),
        ("kafka.max_offsets_per_trigger=1.5", "kafka.max_offsets_per_trigger: "),
        ("kafka.topics=[]", "kafka.topics: "),
        ("kafka.topics[0].format=xml", "kafka.topics[0].format: "),
        ("kafka.topics[0].format=avro", "kafka.topics[0]: topic 'digits-json': format avro with raw framing needs"),
        ("kafka.topics[1].name=digits-json", "kafka.topics: listed twice: digits-json"),
        ("fields[1].name=IMAGE", "fields: listed twice, if only in another case: IMAGE"),
        ("fields[1].name=_Offset", "fields[1].name: _Offset is a column of the table's own"),
        ("fields[0].tensor.shape[1]=0", "must be at least 1, not [28, 0]"),
        (
            "fields[0].tensor.shape=[65536,32768]",
            "fields[0].tensor: a tensor of uint8 [65536, 32768] has 2,147,483,648",
        ),
        ("fields[1].tensor={dtype: uint8, shape: [1]}", "field 'label' needs either a type or a tensor"),
        ("split.validation=0.95", "validation + test must leave a share for training"),
        ("stream_id='a b'", "stream_id: "),
    ],
)
def test_a_fault_names_its_place(override: str, said: str):
    message = fault(override)
    assert said in message
    assert str(INGEST) in message
    assert "Value error" not in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("override", "ends"),
    [
        ("trigger.interval_s=soon", "(given: 'soon')"),
        ("trigger.interval_s=-1", "(given: -1)"),
        ("trigger.interval_s=[1]", "(given: a list)"),
        ("trigger.available_now=maybe", "(given: 'maybe')"),
        ("stream_id=null", "(given: null)"),
        ("stream_id=true", "(given: true)"),
        ("stream_id=1.5", "(given: 1.5)"),
        ("stream_id={a: 1}", "(given: a section)"),
        ("kafka.topics[0].format=xml", "(given: 'xml')"),
        ("split=half", "(given: a single value)"),
        (f"stream_id={'a b' * 1000}", f"(given: '{('a b' * 1000)[:40]}...')"),
    ],
)
def test_a_fault_shows_what_was_given(override: str, ends: str):
    assert fault(override).endswith(ends)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("data.resident=maybe", "data.resident: Input should be 'auto' or a valid boolean (given: 'maybe')"),
        ("cuda_graph=3", "cuda_graph: Input should be 'auto' or a valid boolean (given: 3)"),
        ("optimizer.clip_norm=tight", "optimizer.clip_norm: Input should be a valid number, unable to parse string"),
    ],
)
def test_a_value_of_several_types_is_one_fault(override: str, said: str):
    with pytest.raises(UsageError) as caught:
        train(override)
    assert caught.value.message.startswith(f"{TRAIN}: {said}")
    assert "; " not in caught.value.message


def test_all_faults_are_told_at_once():
    message = fault("trigger.interval=3", "stream_id=null")
    assert "did you mean interval_s?" in message
    assert "stream_id: " in message


@pytest.mark.parametrize(
    ("model", "wanted", "text", "looks_like", "job"),
    [
        (IngestConfig, "an ingest", TRAIN.read_text(encoding="utf-8"), "a training", "jobs/train_barrier.py"),
        (IngestConfig, "an ingest", "data: {}\ncheckpoint: {}\nspark: {}", "a training", "jobs/train_barrier.py"),
        (IngestConfig, "an ingest", "train: {}\ndir: /e", "an experiment", "jobs/experiment.py"),
        (TrainConfig, "a training", INGEST.read_text(encoding="utf-8"), "an ingest", "jobs/stream_ingest.py"),
        (TrainConfig, "a training", "kafka: ???\nstream_id: s\ntables: {}", "an ingest", "jobs/stream_ingest.py"),
        (TrainConfig, "a training", "train: {}\ndir: /e", "an experiment", "jobs/experiment.py"),
        (ExperimentConfig, "an experiment", TRAIN.read_text(encoding="utf-8"), "a training", "jobs/train_barrier.py"),
    ],
)
def test_a_configuration_of_another_kind_is_named_as_such(
    model: type[Frozen], wanted: str, text: str, looks_like: str, job: str, tmp_path: Path
):
    file = tmp_path / "c.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        load(model, file)
    assert caught.value.message == f"{file} looks like {looks_like} configuration, but {wanted} one is wanted here"
    assert f"{job} takes {looks_like} one" in caught.value.hint


def test_many_faults_are_told_in_one_line_that_can_be_read(tmp_path: Path):
    file = tmp_path / "c.yaml"
    file.write_text("zzz: 1\nyyy: 2\nkafak: 3\nstream_id: s\ntables: {}\n", encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        load(IngestConfig, file)
    told = caught.value.message.removeprefix(f"{file}: ").split("; ")
    assert told[:4] == ["unknown key zzz", f"known: {', '.join(IngestConfig.model_fields)}", "unknown key yyy",
                        "unknown key kafak"]  # fmt: skip
    assert told[4:] == ["did you mean kafka?", "kafka: Field required", "fields: Field required", "and 3 more"]


@pytest.mark.parametrize("key", ["model", "optimizer"])
def test_a_key_like_no_other_gets_no_guess(key: str):
    assert "did you mean" not in fault(f"{key}=x")


def test_a_batch_must_serve_each_rank():
    with pytest.raises(UsageError, match="global_batch_size=2 is smaller than world_size=3"):
        train("global_batch_size=2", "world_size=3")


@pytest.mark.parametrize("setting", ["data.version=3", "early_stopping.patience_epochs=2", "optimizer.decay=cosine"])
def test_follow_mode_has_no_end_to_plan_for(setting: str):
    with pytest.raises(UsageError, match=f"{setting.partition('=')[0]} cannot be set with follow.enabled=true"):
        train("follow.enabled=true", setting)


def test_numbers_carry_their_unit():
    units = (
        "_s",
        "_hours",
        "_rows",
        "_steps",
        "_epochs",
        "_bytes",
        "_per_trigger",
        "_batches",
        "_partitions",
        "_fraction",
        "_per_window",
        "_windows",
    )
    free = {"classes", "scale", "mean", "std", "seed", "version", "epochs", "world_size", "global_batch_size"}  # counts
    free |= {"learning_rate", "momentum", "weight_decay", "clip_norm", "min_delta", "validation", "test"}  # no unit
    free |= {"replay_fraction", "significance", "cpus_per_rank"}  # shares and counts
    free |= {"keep_last", "keep_best", "max_restarts"}  # of what stands in the rest of the name

    def numbers(model: type[BaseModel]) -> list[str]:
        found = []
        for name, info in model.model_fields.items():
            kinds = {info.annotation, *get_args(info.annotation)}
            found += [name] if get_origin(info.annotation) is not tuple and kinds & {int, float} else []
            for kind in kinds:
                if isinstance(kind, type) and issubclass(kind, BaseModel):
                    found += numbers(kind)
        return found

    for model in (IngestConfig, TrainConfig):
        assert [name for name in numbers(model) if name not in free and not name.endswith(units)] == []


# --- files and the environment


def test_files_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(UsageError, match=r"cannot read the configuration .*No such file"):
        load(TrainConfig, tmp_path / "none.yaml")
    for text, said in (("a: [1", "not valid YAML"), ("- 1\n- 2\n", "not a list"), ("a: \x00", "not valid YAML")):
        file = tmp_path / "bad.yaml"
        file.write_text(text, encoding="utf-8")
        with pytest.raises(UsageError, match=said):
            load(TrainConfig, file)
    (tmp_path / "latin.yaml").write_bytes(b"model: \xff\xfe")
    with pytest.raises(UsageError, match="not valid YAML"):
        load(TrainConfig, tmp_path / "latin.yaml")


def test_no_file_means_the_defaults():
    config = load(TrainConfig, None, ["data.table=/t", "checkpoint.dir=/c"])
    assert (config.epochs, config.data.table) == (5, "/t")
    with pytest.raises(UsageError) as caught:
        load(TrainConfig, None)
    said = "no --config FILE given, and the command line alone is not enough: data: Field required; checkpoint: "
    assert caught.value.message.startswith(said)
    assert caught.value.hint == "`kbit config init train` writes a commented sample"
    with pytest.raises(UsageError, match=r"^the command line: epochs: ") as caught:
        load(TrainConfig, None, ["data.table=/t", "checkpoint.dir=/c", "epochs=0"])


def test_values_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    text = INGEST.read_text(encoding="utf-8").replace("localhost:9092", "${oc.env:KBIT_TEST_SERVERS}")
    file = tmp_path / "ingest.yaml"
    file.write_text(text, encoding="utf-8")
    monkeypatch.setenv("KBIT_TEST_SERVERS", "broker:9093")
    assert load(IngestConfig, file).kafka.bootstrap_servers == "broker:9093"
    monkeypatch.delenv("KBIT_TEST_SERVERS")
    with pytest.raises(UsageError, match=r"kafka\.bootstrap_servers: .*KBIT_TEST_SERVERS") as caught:
        load(IngestConfig, file)
    assert "needs NAME in the environment" in caught.value.hint
    with pytest.raises(UsageError, match="KBIT_TEST_SERVERS"):
        ingest("stream_id=${oc.env:KBIT_TEST_SERVERS}")


def test_a_mandatory_value_must_be_given(tmp_path: Path):
    file = tmp_path / "ingest.yaml"
    file.write_text(INGEST.read_text(encoding="utf-8").replace("localhost:9092", "???"), encoding="utf-8")
    with pytest.raises(UsageError, match=r"kafka\.bootstrap_servers"):
        load(IngestConfig, file)
    assert load(IngestConfig, file, ["kafka.bootstrap_servers=b:1"]).kafka.bootstrap_servers == "b:1"


def test_local_paths_become_absolute_and_uris_stay():
    config = ingest("tables.samples=here", "tables.rejected=s3://bucket/r", "checkpoint_dir=~/c")
    assert config.tables.samples == str(Path("here").absolute())
    assert config.tables.rejected == "s3://bucket/r"
    assert config.checkpoint_dir == str(Path.home() / "c")


# --- options of Spark and Kafka


def test_options_from_the_command_line_win_over_the_file(tmp_path: Path):
    file = tmp_path / "train.yaml"
    settings = "spark: {spark.executor.cores: 1, spark.ui.enabled: false, spark.memory.fraction: 0.5}"
    file.write_text(TRAIN.read_text(encoding="utf-8").replace("spark: {}", settings), encoding="utf-8")
    config = load(TrainConfig, file, ["spark.spark.executor.cores=2"])
    wanted = {"spark.executor.cores": "2", "spark.ui.enabled": "false", "spark.memory.fraction": "0.5"}
    assert config.spark == wanted


@given(st.dictionaries(st.from_regex(r"[a-z]+(\.[a-z]+){0,3}", fullmatch=True), st.text()))
def test_flat_options_stay_as_they_are(options: dict[str, str]):
    assert flatten(options) == options


# --- secrets

SECRETS = ("sasl.jaas.config", "ssl.keystore.password", "ssl.keystore.key", "ssl.key.pem", "sasl.oauthbearer.token.x")


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_in_clear_text_is_refused_and_not_repeated(name: str):
    message = fault(f"kafka.options={{{name}: hunter2}}")
    assert name in message
    assert "options_from_env" in message
    assert "hunter2" not in message
    assert "hunter2" not in fault(f"kafka.options.{name}=hunter2")


@pytest.mark.parametrize(
    "override",
    [
        "kafka.options=hunter2",
        "kafka.options.x=[hunter2]",
        "kafka.options_from_env.x=[hunter2]",
        "kafka.registry=https://me:hunter2@host",
        "kafka.registry={url: [hunter2]}",
        "kafka.registry={url: 'http://h', basic_auth_from_env: [hunter2]}",
        "kafka.registry={url: 'http://h', key_password_from_env: 7472}",
        "kafka.pasword=hunter2",
        "kafka=hunter2",
        "spark.x=[hunter2]",
        "spark=hunter2",
    ],
)
def test_a_fault_never_shows_what_may_be_a_secret(override: str):
    assert not any(secret in fault(override) for secret in ("hunter2", "7472"))


def test_harmless_options_are_no_secrets():
    assert secrets_in({"security.protocol": "SSL", "sasl.mechanism": "PLAIN", "key.deserializer": "x"}) == []


def test_secrets_come_from_the_environment_and_stay_out_of_the_record(monkeypatch: pytest.MonkeyPatch):
    config = ingest(
        "kafka.options.security.protocol=SASL_SSL", "kafka.options_from_env.sasl.jaas.config=KBIT_TEST_JAAS"
    )
    monkeypatch.delenv("KBIT_TEST_JAAS", raising=False)
    with pytest.raises(UsageError, match="KBIT_TEST_JAAS not set in the environment"):
        config.kafka.consumer_options()
    monkeypatch.setenv("KBIT_TEST_JAAS", "hunter2")
    assert config.kafka.consumer_options() == {"security.protocol": "SASL_SSL", "sasl.jaas.config": "hunter2"}
    assert "hunter2" not in dump(config)
    assert "hunter2" not in repr(config)


def test_configurations_are_frozen():
    config = train()
    with pytest.raises(ValueError, match="frozen"):
        config.epochs = 9  # type: ignore[misc]


def test_validate_names_the_source():
    class Small(Frozen):
        kafka: KafkaConfig

    with pytest.raises(UsageError, match=r"^here: kafka.bootstrap_servers: Field required"):
        validate(Small, {"kafka": {"topics": [{"name": "a", "format": "json"}]}}, "here")
