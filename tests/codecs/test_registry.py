"""The Schema Registry's client against a real server: what it keeps, what it repeats, and when it stops."""

from __future__ import annotations

import json
import logging
import socket
import ssl
import struct
import threading
import time
from contextlib import closing
from typing import Any

import pytest
import urllib3

from kbit_spark.codecs.registry import RegisteredSchema, SchemaRegistry
from kbit_spark.config.load import validate
from kbit_spark.config.registry import RegistryConfig
from kbit_spark.errors import RunError, UsageError
from kbit_spark.local.registry import Registry, RegistryServer, serve
from tests.fixtures.jobs import eventually
from tests.fixtures.registry import Certificates

AVRO = {"schema": '{"type":"record","name":"R","fields":[]}'}


def _client(url: str, retry_for_s: float = 0.0, **settings: Any) -> SchemaRegistry:
    return SchemaRegistry(RegistryConfig.model_validate({"url": url, "retry_for_s": retry_for_s, **settings}))


def test_a_schema_is_asked_for_once(registry: RegistryServer) -> None:
    number = registry.registry.register("digits-value", AVRO)
    client = _client(registry.url + "/")
    assert client.schema(number) == client.schema(number) == RegisteredSchema("AVRO", AVRO["schema"])
    assert registry.requests == [f"GET /schemas/ids/{number}"]


def test_an_unknown_id_is_none_and_asked_again(registry: RegistryServer) -> None:
    client = _client(registry.url)
    assert client.schema(1) is None
    assert registry.registry.register("late", AVRO) == 1
    assert client.schema(1) is not None


def test_references_come_with_the_schema_in_order(registry: RegistryServer) -> None:
    def proto(subject: str, text: str, *names: str) -> int:
        references = [{"name": name, "subject": name, "version": 1} for name in names]
        schema = {"schema": text, "schemaType": "PROTOBUF", "references": references}
        return registry.registry.register(subject, schema)

    proto("base/a.proto", "a")
    proto("b.proto", "b", "base/a.proto")
    top = proto("top", "t", "b.proto", "base/a.proto")
    client = _client(registry.url)
    found = client.schema(top)
    assert found == RegisteredSchema("PROTOBUF", "t", {"base/a.proto": "a", "b.proto": "b"})
    assert "GET /subjects/base%2Fa.proto/versions/1" in registry.requests
    dangling = proto("dangling", "d", "absent.proto")
    with pytest.raises(RunError, match=r"absent\.proto"):
        client.schema(dangling)


def test_an_outage_is_waited_out() -> None:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    known = Registry()
    number = known.register("s", AVRO)
    stop = threading.Event()

    def later() -> None:
        time.sleep(0.5)
        with serve(known, port=port):
            stop.wait(20)

    thread = threading.Thread(target=later)
    thread.start()
    try:
        assert _client(f"http://127.0.0.1:{port}", retry_for_s=20).schema(number) is not None
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_fault_of_the_registry_is_repeated_then_stops(status: int, caplog: pytest.LogCaptureFixture) -> None:
    faults = iter([status, status])
    with serve(before=lambda path: next(faults, None)) as server:
        server.registry.register("s", AVRO)
        assert _client(server.url, retry_for_s=20).schema(1) is not None
        assert len(server.requests) == 3
    with serve(before=lambda path: status) as server, pytest.raises(RunError, match="nothing is lost") as caught:
        _client(server.url, retry_for_s=0.5).schema(1)
    assert str(status) in str(caught.value)
    assert "asking again" in caplog.text


def test_nobody_listening_stops_the_run() -> None:
    with serve() as server:
        url = server.url
    with pytest.raises(RunError, match=r"gave no answer for 0\.3 s"):
        _client(url, retry_for_s=0.3).schema(1)


def test_a_slow_answer_is_given_up() -> None:
    def slow(path: str) -> None:
        time.sleep(1.0)

    with serve(before=slow) as server:
        server.registry.register("s", AVRO)
        start = time.monotonic()
        with pytest.raises(RunError, match="timed out"):
            _client(server.url, timeout_s=0.2, retry_for_s=0.3).schema(1)
        assert time.monotonic() - start < 1.0


def test_a_client_that_has_left_is_no_fault_of_the_server(capfd: pytest.CaptureFixture[str]) -> None:
    left, answering = threading.Event(), list[threading.Thread]()

    def wait(path: str) -> None:
        answering.append(threading.current_thread())
        left.wait(10)

    with serve(before=wait) as server:
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not a farewell
            client.sendall(b"GET /subjects HTTP/1.1\r\nhost: here\r\n\r\n")
            eventually(lambda: bool(answering))
        left.set()
        answering[0].join(10)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("path", ["/wrong", "/schemas"])
def test_another_servers_404_is_no_unknown_schema(registry: RegistryServer, path: str) -> None:
    with pytest.raises(RunError, match=r"does not answer as a Schema Registry.*kafka\.registry\.url"):
        _client(registry.url + path).schema(1)


def test_a_redirect_is_not_followed() -> None:
    with serve(before=lambda path: 302) as server, pytest.raises(RunError, match="status 302"):
        _client(server.url).schema(1)


def test_tls_and_password(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("REGISTRY_AUTH", "reader:s3cret:pass")
    monkeypatch.setenv("WRONG_AUTH", "reader:other")
    with serve(credentials="reader:s3cret:pass", tls=certificates.server) as server:
        server.registry.register("s", AVRO)
        trusted: dict[str, Any] = {"ca_file": str(certificates.ca)}
        assert _client(server.url, basic_auth_from_env="REGISTRY_AUTH", **trusted).schema(1) is not None
        for variable in (None, "WRONG_AUTH"):
            with pytest.raises(RunError, match=r"refuses the credentials.*basic_auth_from_env"):
                _client(server.url, basic_auth_from_env=variable, **trusted).schema(1)
        with pytest.raises(RunError, match=r"no trusted connection.*ca_file"):
            _client(server.url, retry_for_s=20).schema(1)
    assert "s3cret" not in caplog.text


def test_a_certificate_of_the_client(certificates: Certificates) -> None:
    certificates.server.verify_mode = ssl.CERT_REQUIRED
    try:
        with serve(tls=certificates.server) as server:
            server.registry.register("s", AVRO)
            trusted: dict[str, Any] = {"ca_file": str(certificates.ca)}
            files: dict[str, Any] = {
                "certificate_file": str(certificates.client),
                "key_file": str(certificates.client_key),
            }
            assert _client(server.url, **trusted, **files).schema(1) is not None
            with pytest.raises(RunError, match="gave no answer"):
                _client(server.url, **trusted).schema(1)
    finally:
        certificates.server.verify_mode = ssl.CERT_NONE


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"url": "https://user:pw@host"}, "basic_auth_from_env"),
        ({"url": "host:8081"}, "no http or https address"),
        ({"url": "http://host", "key_file": "k"}, "belong together"),
        ({"url": "http://host", "basic_auth_fromenv": "X"}, "did you mean basic_auth_from_env"),
    ],
)
def test_settings_that_cannot_be_right(settings: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        validate(RegistryConfig, settings, "r.yaml")
    assert "pw" not in str(caught.value)


def test_what_is_absent_at_the_start_is_told() -> None:
    with pytest.raises(UsageError, match="NO_SUCH_VARIABLE not set"):
        _client("http://host", basic_auth_from_env="NO_SUCH_VARIABLE")
    with pytest.raises(UsageError, match="cannot read the certificates"):
        _client("https://host", ca_file="absent.pem")


def test_the_server_speaks_the_rest_api(registry: RegistryServer) -> None:
    def ask(method: str, path: str, **more: object) -> tuple[int, object]:
        answer = urllib3.request(method, registry.url + path, **more)  # type: ignore[arg-type]
        return answer.status, json.loads(answer.data)

    assert ask("POST", "/subjects/a%2Fb/versions", json=AVRO) == (200, {"id": 1})
    assert ask("POST", "/subjects/c/versions", json=AVRO) == (200, {"id": 1})
    assert ask("GET", "/subjects") == (200, ["a/b", "c"])
    assert ask("GET", "/subjects/c/versions") == (200, [1])
    assert ask("GET", "/subjects/c/versions/latest") == (200, {"subject": "c", "version": 1, "id": 1, **AVRO})
    assert ask("GET", "/subjects/d/versions/1")[0] == 404
    assert ask("GET", "/subjects/c/versions/2")[1] == {"error_code": 40402, "message": "Version not found."}
    assert ask("POST", "/subjects/c/versions", json=[])[0] == 422
