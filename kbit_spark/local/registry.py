"""A small Schema Registry for a laptop and for tests: the part of the public REST API that producers and readers use.

It keeps its schemas in memory, takes what it is given without judging compatibility, and speaks TLS and basic auth.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

_TYPE = "application/vnd.schemaregistry.v1+json"


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """An answer with an error code; the first three digits are the status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Registry:
    """The schemas, by id and by subject; the methods are what the routes call."""

    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Add a version to a subject and return the schema's id; the same schema has one id, in whatever subject."""
        kept = {key: schema[key] for key in ("schema", "schemaType", "references") if schema.get(key)}
        with self._lock:
            same = (known for known, other in self.schemas.items() if other == kept)
            schema_id = next(same, max(self.schemas, default=0) + 1)
            self.schemas[schema_id] = kept
            versions = self.subjects.setdefault(subject, [])
            if schema_id not in versions:
                versions.append(schema_id)
        return schema_id

    def version(self, subject: str, number: str) -> dict[str, Any]:
        """Return one version of a subject, ``latest`` for the newest.

        Raises:
            Refused: there is none.
        """
        versions = self.versions(subject)
        place = len(versions) if number == "latest" else int(number) if number.isdigit() else 0
        if place not in versions:
            raise Refused(40402, "Version not found.")
        schema_id = self.subjects[subject][place - 1]
        return {"subject": subject, "version": place, "id": schema_id, **self.schemas[schema_id]}

    def versions(self, subject: str) -> list[int]:
        """Return the numbers of a subject's versions.

        Raises:
            Refused: there is no such subject.
        """
        if subject not in self.subjects:
            raise Refused(40401, f"Subject '{subject}' not found.")
        return list(range(1, len(self.subjects[subject]) + 1))

    def schema(self, schema_id: int) -> dict[str, Any]:
        """Return a schema by id.

        Raises:
            Refused: there is none.
        """
        if schema_id not in self.schemas:
            raise Refused(40403, f"Schema {schema_id} not found")
        return self.schemas[schema_id]


@dataclass(frozen=True)
class RegistryServer:
    """A registry that listens."""

    url: str
    registry: Registry
    requests: list[str]
    """Method and path of every request, in order."""


@contextmanager
def serve(
    registry: Registry | None = None,
    *,
    port: int = 0,
    credentials: str | None = None,
    tls: ssl.SSLContext | None = None,
    before: Callable[[str], int | None] | None = None,
) -> Iterator[RegistryServer]:
    """Serve a registry on the loopback address until the block ends.

    Args:
        registry: what it knows; none: nothing yet.
        port: 0 for a free one.
        credentials: ``user:password`` that every request must bring.
        tls: makes it an https server.
        before: called with the path of each request; a status that it returns is the answer, for faults.
    """
    known, requests = registry or Registry(), list[str]()
    expected = f"Basic {b64encode(credentials.encode()).decode()}" if credentials else None
    handler = type("Handler", (_Handler,), {"routes": _routes(known), "log": requests, "authorization": expected})
    handler.before = staticmethod(before) if before else None  # type: ignore[attr-defined]
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield RegistryServer(f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}", known, requests)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


Route = tuple[str, re.Pattern[str], Callable[..., Any]]


def _routes(registry: Registry) -> list[Route]:
    def route(method: str, path: str, action: Callable[..., Any]) -> Route:
        return method, re.compile(path), action

    return [
        route("GET", r"/schemas/ids/(-?\d+)", lambda _, number: registry.schema(int(number))),
        route("GET", r"/schemas/types", lambda _: ["AVRO", "JSON", "PROTOBUF"]),
        route("GET", r"/subjects", lambda _: sorted(registry.subjects)),
        route("GET", r"/subjects/([^/]+)/versions", lambda _, subject: registry.versions(subject)),
        route("GET", r"/subjects/([^/]+)/versions/([^/]+)", lambda _, *place: registry.version(*place)),
        route("POST", r"/subjects/([^/]+)/versions", lambda body, subject: {"id": registry.register(subject, body)}),
    ]


class _Handler(BaseHTTPRequestHandler):
    routes: list[Route]
    log: list[str]
    authorization: str | None
    before: Callable[[str], int | None] | None
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self) -> None:
        self._handle("GET")

    def do_POST(self) -> None:
        self._handle("POST")

    def _handle(self, method: str) -> None:
        path = self.path.partition("?")[0]
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.log.append(f"{method} {path}")
        if self.before and (status := self.before(path)):
            self._send(status, {"error_code": status * 100 + 1, "message": "fault"})
        elif self.authorization and self.headers.get("authorization") != self.authorization:
            self._send(401, {"error_code": 401, "message": "Unauthorized"})
        else:
            self._send(*self._answer(method, path, body))

    def _answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        for wanted, pattern, action in self.routes:
            if wanted == method and (match := pattern.fullmatch(path)):
                try:
                    return 200, action(json.loads(body or b"null"), *map(unquote, match.groups()))
                except Refused as refused:
                    return refused.code // 100, {"error_code": refused.code, "message": str(refused)}
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    return 422, {"error_code": 42201, "message": f"Invalid schema: {error}"}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _send(self, status: int, answer: Any) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", _TYPE)
        self.send_header("content-length", str(len(data)))
        with suppress(ConnectionError):  # whoever asked no longer waits
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing; the requests are kept."""
