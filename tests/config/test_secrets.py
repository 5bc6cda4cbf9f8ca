"""Secrets in options of other programs: whatever is written down has a mask for them, and nothing else is touched."""

from __future__ import annotations

import shlex
import sys
import traceback
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from kbit_spark.config.experiment import ExperimentConfig
from kbit_spark.config.ingest import IngestConfig
from kbit_spark.config.load import dump, load, validate
from kbit_spark.config.secrets import MASK, masked, masked_argument, secrets_in
from kbit_spark.config.train import TrainConfig
from kbit_spark.epoch_guard import command
from kbit_spark.errors import UsageError
from kbit_spark.experiments.plan import Plan, Run
from kbit_spark.experiments.results import Result
from kbit_spark.schemas.snapshot import Snapshot
from kbit_spark.training.job import Outcome
from kbit_spark.training.manifest import Identity, Lineage
from tests.config.test_load import INGEST, TRAIN

SECRET = "hunter2"
NAMES = (
    "spark.hadoop.fs.s3a.secret.key", "spark.hadoop.fs.s3a.access.key", "spark.hadoop.fs.s3a.session.token",
    "spark.hadoop.fs.s3a.bucket.b.encryption.key", "spark.hadoop.fs.azure.account.key.me.dfs.core.windows.net",
    "spark.hadoop.fs.azure.sas.box.me.blob.core.windows.net", "spark.hadoop.fs.azure.account.oauth2.client.secret",
    "spark.hadoop.fs.gs.auth.service.account.private.key", "spark.authenticate.secret", "spark.ssl.keyPassword",
    "spark.executorEnv.AWS_SECRET_ACCESS_KEY", "spark.executorEnv.HF_TOKEN", "spark.executorEnv.API_KEY",
    "spark.sql.catalog.rest.credential", "spark.hadoop.javax.jdo.option.ConnectionPassword",
    "sasl.jaas.config", "sasl.oauthbearer.config", "ssl.keystore.key", "ssl.key.pem", "basic.auth.user.info",
)  # fmt: skip
HARMLESS = (
    "spark.executor.cores", "spark.authenticate", "spark.io.encryption.keySizeBits", "spark.hadoop.fs.s3a.endpoint",
    "spark.hadoop.fs.s3a.aws.credentials.provider", "spark.sql.shuffle.partitions", "security.protocol",
    "key.deserializer", "ssl.keystore.location", "sasl.oauthbearer.token.endpoint.url", "model_options.pad_token",
)  # fmt: skip
HOLDERS = (
    f"-Xmx1g -Djavax.net.ssl.trustStorePassword={SECRET}",
    f"--conf spark.x.secret.key={SECRET}",
    f'jdbc:postgresql://host/db?user=me&password: "{SECRET}"',
    f"https://me:{SECRET}@host/a,https://other",
    f"https://{SECRET}@host/a",
    f"s3a://key:{SECRET}@bucket/a",
)
"""Values of options whose names say nothing."""

values = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=9)


def ingest(**changes: Any) -> IngestConfig:
    return load(IngestConfig, INGEST).model_copy(update=changes)


@pytest.mark.parametrize("name", NAMES)
def test_names_of_secrets(name: str) -> None:
    assert secrets_in([name, name.upper()]) == [name, name.upper()]


def test_the_dump_masks_a_secret_under_every_name_and_keeps_the_rest() -> None:
    told = {**dict.fromkeys(NAMES, SECRET), **dict.fromkeys(HARMLESS, "told")}
    for text in (dump(ingest(spark=told)), dump(load(TrainConfig, TRAIN).model_copy(update={"spark": told}))):
        assert SECRET not in text
        assert yaml.safe_load(text)["spark"] == {**dict.fromkeys(NAMES, MASK), **dict.fromkeys(HARMLESS, "told")}


@pytest.mark.parametrize("value", HOLDERS)
def test_a_value_that_holds_a_secret_is_masked_too(value: str) -> None:
    assert SECRET not in dump(ingest(spark={"spark.driver.extraJavaOptions": value}))
    assert SECRET not in masked_argument(f"spark.spark.driver.extraJavaOptions={value}")
    assert SECRET not in masked_argument(f"spark={{spark.driver.extraJavaOptions: {value!r}}}")


@given(
    name=st.sampled_from(NAMES),
    value=values.map(lambda text: f"<{SECRET}{text}{SECRET}>"),
    around=st.lists(st.sampled_from(["nested", "list"]), max_size=3),
)
def test_no_secret_gets_through_however_deep_it_lies(name: str, value: str, around: list[str]) -> None:
    data: Any = {name: value, "spark.executor.cores": "2"}
    for kind in around:
        data = {"inner": data} if kind == "nested" else [data]
    found = masked({"spark": data, "kafka": {"options_from_env": {name: "VARIABLE"}}})
    assert SECRET not in repr(found)
    assert repr(found).count(repr(MASK)) == 1
    assert found["kafka"] == {"options_from_env": {name: "VARIABLE"}}


@given(st.dictionaries(st.sampled_from(HARMLESS), values | st.integers() | st.none() | st.booleans(), max_size=4))
def test_what_is_no_secret_stays(options: dict[str, Any]) -> None:
    assume(not any("@" in str(value) or "=" in str(value) or ":" in str(value) for value in options.values()))
    assert masked({"spark": options, "n": [1, 2.5, None]}) == {"spark": options, "n": [1, 2.5, None]}


def test_addresses_without_a_secret_stay() -> None:
    for address in ("abfss://box@me.dfs.core.windows.net/a", "hdfs://name:8020/a@b", "s3a://b/password=1/x", "me@home"):
        assert masked({"tables": {"rejected": address}}) == {"tables": {"rejected": address}}


# --- what a run writes down


def test_lineage_and_results_are_masked_and_go_on_to_serve() -> None:
    config = load(TrainConfig, TRAIN).model_copy(update={"spark": dict.fromkeys(NAMES, SECRET)})
    snapshot = Snapshot(table="t", table_id="i", version=3, files=(), kafka=(), kafka_complete=True, tensors={})
    lineage = Lineage.of(config, snapshot, "code")
    assert TrainConfig.model_validate(lineage.config) == config.model_copy(update={"spark": dict.fromkeys(NAMES, MASK)})
    experiment = ExperimentConfig.model_construct(train=config, iterations=1, against={}, dir="d")
    plan = Plan.of(experiment, snapshot, "name")
    run = Run.__new__(Run)
    for key, value in {"configuration": "baseline", "iteration": 0, "config": config, "folder": None}.items():
        object.__setattr__(run, key, value)
    outcome = Outcome.__new__(Outcome)
    for key in ("test_rows", "test_accuracy", "test_loss"):
        object.__setattr__(outcome, key, 1)
    object.__setattr__(outcome, "stopped_early", False)
    object.__setattr__(outcome, "checkpoint", "c")
    result = Result.of(run, plan, outcome, [])
    for record in (lineage, Identity.of(config, snapshot), plan, result):
        assert SECRET not in record.model_dump_json()
    plan.check(experiment)


# --- the command line


def forms(name: str, value: str) -> list[str]:
    """Return the ways to give one option on the command line."""
    first, *rest = name.split(".")
    nested: Any = value
    for part in reversed(name.split(".")):
        nested = {part: nested}
    return [
        f"spark.{name}={value}",
        f"spark[{first}]{''.join(f'[{part}]' for part in rest)}={value}",
        f"spark={yaml.safe_dump({name: value}, default_flow_style=True, width=999).strip()}",
        f"spark={yaml.safe_dump(nested, default_flow_style=True, width=999).strip()}",
        f"spark={{{name}: {value}",  # YAML that is cut off
        f"--conf=spark.{name}={value}",
        f"spark.{name}={value} # note",
    ]


@settings(deadline=None)  # parses YAML
@given(st.sampled_from(NAMES), values | st.integers(0, 9).map(str))
def test_no_argument_shows_a_secret(name: str, value: str) -> None:
    secret = f"{SECRET}{value}{SECRET}"
    for argument in forms(name, secret):
        assert SECRET not in masked_argument(argument)
        assert MASK in masked_argument(argument)
    for argument in forms(name, "7472"):
        assert "7472" not in masked_argument(argument)


@pytest.mark.parametrize(
    "argument",
    [
        "--config", "conf/ingest.yaml", "--config=a b.yaml", "--rebase", "trigger.available_now=true",
        "fields=[{a: 1}]", "spark.spark.executor.cores=2", "spark={spark.executor.cores: 2}", "epochs=3", "a={",
        "data.table=s3://b/token=1",
        "kafka.options_from_env.sasl.jaas.config=KAFKA_JAAS", "kafka.options_from_env={sasl.jaas.config: KAFKA_JAAS}",
        "kafka.registry.basic_auth_from_env=AUTH", "kafka.registry.key_password_from_env=KEY",
        "spark.spark.hadoop.fs.s3a.secret.key=${oc.env:S3_SECRET}", "model_options={pad_token: x}",
    ],
)  # fmt: skip
def test_arguments_without_a_secret_stay(argument: str) -> None:
    assert masked_argument(argument) == argument


@pytest.mark.parametrize("submitted", [True, False])
def test_the_command_that_goes_on_shows_no_secret(monkeypatch: pytest.MonkeyPatch, *, submitted: bool) -> None:
    given = ["jobs/stream_ingest.py", "--config", "a b.yaml", f"spark.spark.hadoop.fs.s3a.secret.key={SECRET}"]
    monkeypatch.setattr(sys, "argv", given)
    monkeypatch.setattr(sys, "orig_argv", ["python", *given])
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    if submitted:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    wanted = [*given[:3], "spark.spark.hadoop.fs.s3a.secret.key=***", "--rebase"]
    assert shlex.split(command("--rebase")) == [*(("spark-submit", "...") if submitted else ("python",)), *wanted]


@pytest.mark.parametrize(
    "override",
    [
        f"spark.spark.hadoop.fs.s3a.secret.key={{{SECRET}",
        f"spark.spark.hadoop.fs.s3a.secret.key=${{{SECRET}",
        f"spark={{spark.hadoop.fs.s3a.secret.key: {SECRET}",
        f"kafka.bootstrap_servers=me:{SECRET}@host:9092",
        f"kafka.options.sasl.oauthbearer.config={SECRET}",
        f"kafka.options_from_env.sasl.password={SECRET} x",
        f"kafka.registry={{url: 'https://me:{SECRET}/x@host'}}",
        f"tables.samples=s3a://key:{SECRET}@bucket/a",
        f"checkpoint_dir=s3a://key:{SECRET}@bucket/a",
        f"telemetry.metrics_table=s3a://key:{SECRET}@bucket/a",
    ],
)
def test_a_refusal_shows_no_secret(override: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(IngestConfig, INGEST, [override])
    assert SECRET not in "".join(traceback.format_exception(caught.value))  # as the log has it


@pytest.mark.parametrize(
    "value", [f"hunt${{{SECRET}", f"${{{SECRET}}}", f"${{{SECRET}:x}}", f'"{SECRET}', f"[{SECRET}"]
)
def test_a_file_that_cannot_be_read_shows_no_secret(value: str, tmp_path: Any) -> None:
    file = tmp_path / "ingest.yaml"
    line = f"spark: {{}}\n  spark.hadoop.fs.s3a.secret.key: {value}\n".replace(" {}", "")
    file.write_text(INGEST.read_text(encoding="utf-8").replace("spark: {}", line), encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        load(IngestConfig, file)
    assert SECRET not in "".join(traceback.format_exception(caught.value))  # as the log has it


# --- a model's options, which checkpoints keep


@pytest.mark.parametrize(
    "options",
    [
        {"hf_token": SECRET}, {"hub": {"token": SECRET}}, {"parts": [{"api_key": SECRET}]}, {"password": SECRET},
        {"weights": f"https://me:{SECRET}@host/w.pt"},
    ],
)  # fmt: skip
def test_a_secret_in_model_options_is_refused(options: dict[str, Any]) -> None:
    data = OmegaConf.to_container(OmegaConf.load(TRAIN))
    with pytest.raises(UsageError, match=r"model_options: .* would hold a secret in clear text") as caught:
        validate(TrainConfig, {**data, "model_options": options}, "here")  # type: ignore[dict-item]
    assert SECRET not in "".join(traceback.format_exception(caught.value))  # as the log has it


def test_models_may_have_tokens_of_their_own() -> None:
    options = {"pad_token": "<pad>", "max_tokens": 512, "tokenizer": {"name": "bpe"}, "weights": "https://host/w.pt"}
    config = load(TrainConfig, TRAIN, [f"model_options={yaml.safe_dump(options, default_flow_style=True, width=999)}"])
    assert yaml.safe_load(dump(config))["model_options"] == options
