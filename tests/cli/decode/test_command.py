"""`kbit decode` as a person runs it: with its own JVM, real schemas, a real registry."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import write_deltalake

from kbit_spark.cli.decode.jvm import decoders
from kbit_spark.cli.decode.payload import read_letter
from kbit_spark.cli.lineage import Coordinates
from kbit_spark.errors import MissingRequirement, RunError
from kbit_spark.local.registry import Registry, serve
from tests.cli.test_main import kbit
from tests.fixtures.jobs import SCHEMA, avro_records, image, ingest_data

VECTORS = Path(__file__).parents[2] / "vectors"
PROTO = 'syntax = "proto3"; package t; message Digit { bytes image = 1; int32 label = 2; }'
AVRO = ["--format", "avro", "--schema", str(SCHEMA)]
JSON = ["--format", "json", "--fields", "label int not null"]


def value(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_a_value_from_hex_base64_and_file(tmp_path: Path) -> None:
    [(_, payload, *_)] = avro_records(1)
    assert payload is not None
    (tmp_path / "payload").write_bytes(payload)
    wanted = {"image": {"$hex": bytes(image(0)).hex()}, "label": 0}
    for option in (
        ["--hex", payload.hex(" ")],
        ["--base64", base64.b64encode(payload).decode()],
        ["--file", "payload"],
    ):
        assert value(kbit("decode", *AVRO, *option, cwd=tmp_path)) == wanted


def test_a_caret_stands_under_the_byte(tmp_path: Path) -> None:
    done = kbit("decode", *JSON, "--hex", b'{"label": "seven"}'.hex(), cwd=tmp_path)
    assert done.returncode == 1
    head, dump, caret, *_ = done.stdout.splitlines()
    assert head.startswith("type_mismatch at byte 10 of 18: ")
    at = caret.index("^^")
    assert dump[at : at + 2] == b'"'.hex()
    assert dump.endswith('|{"label": "seven|')


def test_protobuf_whole_rows_and_chosen_columns(tmp_path: Path) -> None:
    (tmp_path / "digit.proto").write_text(PROTO)
    shared = ["--format", "protobuf", "--schema", "digit.proto", "--message", "t.Digit", "--hex", "0a02ff001007"]
    assert value(kbit("decode", *shared, cwd=tmp_path)) == {"image": {"$hex": "ff00"}, "label": 7}
    assert value(kbit("decode", *shared, "--fields", "label bigint not null", cwd=tmp_path)) == {"label": 7}


def test_framing_auto_says_what_it_took(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "label", "type": "int"}]}
    (tmp_path / "r.avsc").write_text(json.dumps(schema))
    options = ["--format", "avro", "--schema", "r.avsc", "--framing", "auto"]
    with serve(Registry({5: {"schema": json.dumps(schema)}})) as server:
        framed = kbit("decode", *options, "--registry", server.url, "--hex", "0000000005 0e", cwd=tmp_path)
        unknown = kbit("decode", *options, "--registry", server.url, "--hex", "0000000006 0e0000", cwd=tmp_path)
    assert (value(framed), framed.stderr) == ({"label": 7}, "framing: confluent\n")
    assert unknown.returncode == 1
    assert unknown.stdout.startswith("unknown_schema at byte ")
    raw = kbit("decode", *options, "--hex", "0e", cwd=tmp_path)
    assert (value(raw), raw.stderr) == ({"label": 7}, "framing: raw\n")


def test_a_streams_configuration_says_how_its_topics_are_written(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(ingest_data(tmp_path, "nowhere:1", {"one": "json", "two": "avro"})))
    payload = json.dumps({"image": image(1), "label": 1}).encode().hex()
    options = ["--config", "c.yaml", "--hex", payload]
    found = value(kbit("decode", *options, "--topic", "one", cwd=tmp_path))
    assert found == {"image": {"$hex": bytes(image(1)).hex()}, "label": 1}
    done = kbit("decode", *options, cwd=tmp_path)
    assert (done.returncode, "--topic: one, two" in done.stderr) == (2, True)


@pytest.mark.parametrize(("depth", "says"), [(400, "nests too deeply"), (5_000, "cannot read the schema deep.avsc")])
def test_a_schema_without_bottom(depth: int, says: str, tmp_path: Path) -> None:
    array = '{"type": "array", "items": ' * depth + '"int"' + "}" * depth
    record = f'{{"type": "record", "name": "r", "fields": [{{"name": "a", "type": {array}}}]}}'
    (tmp_path / "deep.avsc").write_text(record)
    done = kbit("decode", "--hex", "00", "--format", "avro", "--schema", "deep.avsc", cwd=tmp_path)
    assert (done.returncode, says in done.stderr) == (2, True), done.stderr


def test_a_letter_comes_from_a_rejected_table_only(tmp_path: Path) -> None:
    place = Coordinates("t", 1, 7)
    letters = {"topic": ["t", "t"], "partition": [1, 1], "offset": [6, 7], "payload": [b"six", b"seven"]}
    write_deltalake(str(tmp_path / "rejected"), pa.table(letters))
    assert read_letter(str(tmp_path / "rejected"), place) == b"seven"
    write_deltalake(str(tmp_path / "other"), pa.table({"image": [b""]}))
    with pytest.raises(RunError, match="other is no rejected table: it has no column topic"):
        read_letter(str(tmp_path / "other"), place)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "one of --hex, --base64, --file"),
        (["--hex", "00", "--base64", "AA=="], "one of --hex, --base64, --file"),
        (["--hex", "0"], "--hex: "),
        (["--base64", "A"], "--base64: "),
        (["--file", "nowhere"], "error: --file nowhere: No such file or directory\n"),
        (["--file", "."], "error: --file .: Is a directory\n"),
        (["--hex", "00"], "--format"),
        (["--hex", "00", "--format", "json"], "--fields"),
        (["--hex", "00", "--format", "json", "--fields", "label nonsense"], "nonsense"),
        (["--hex", "00", "--format", "avro"], "schema_file"),
        (["--hex", "00", "--format", "avro", "--schema", "nowhere.avsc"], "nowhere.avsc"),
        (["--hex", "00", "--format", "xml"], "xml"),
        (["--hex", "00", "--format", "json", "--fields", "a int", "--topic", "t"], "--config"),
        (["--letter", "t:0:1"], "--config FILE --letter topic:partition:offset"),
        (["--vectors"], "--vectors"),
        (["--vectors", "nowhere.jsonl"], "error: cannot read the vectors nowhere.jsonl: No such file or directory\n"),
        (["--vectors", "."], "error: . is a folder, not a vector file\n  name the files in it"),
        (["file"], "--file"),
    ],
)
def test_bad_usage(arguments: list[str], says: str, tmp_path: Path) -> None:
    done = kbit("decode", *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_java_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingRequirement, match="Java does not start"), decoders():
        pass


def test_vector_files_pass_and_a_mismatch_is_named(tmp_path: Path) -> None:
    files = [str(VECTORS / f"{name}.jsonl") for name in ("json", "mongo", "avro", "protobuf")]
    count = sum(len(Path(file).read_text().splitlines()) for file in files)
    done = kbit("decode", "--vectors", *files, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines() == [f"vectors: passed={count - 2} failed=0 skipped=2"]

    case = json.loads((VECTORS / "json.jsonl").read_text().splitlines()[0])
    (tmp_path / "wrong.jsonl").write_text(json.dumps({**case, "expect": {"value": {"other": 1}}}))
    done = kbit("decode", "--vectors", "wrong.jsonl", files[0], cwd=tmp_path)
    assert done.returncode == 1
    mismatch, summary = done.stdout.splitlines()
    assert mismatch.startswith(f"{case['id']}: expected ")
    assert "failed=1" in summary
