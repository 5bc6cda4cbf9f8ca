"""The Schema Registry's client: schemas by id, asked once each.

An outage is not poison: requests are repeated for a while, then the run stops before its batch commits. Only the
registry's own word that it has no such schema makes an id unknown; an answer from anything else does not.
"""

from __future__ import annotations

import json
import logging
import random
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import urllib3
from urllib3.exceptions import HTTPError, SSLError

from kbit_spark.config.registry import RegistryConfig
from kbit_spark.errors import RunError, UsageError, first_line

log = logging.getLogger("kbit")

_NO_SCHEMA, _NO_SUBJECT, _NO_VERSION = 40403, 40401, 40402
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
_BUSY = (408, 429)
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema as the registry gives it."""

    kind: str
    """AVRO, PROTOBUF or JSON."""

    text: str
    references: Mapping[str, str] = field(default_factory=dict)
    """Texts of the schemas that it needs, those that these need included, by the name under which they are known."""


class SchemaRegistry:
    """Answers what stands behind a schema id; a schema never changes, so it is asked for once."""

    def __init__(self, config: RegistryConfig) -> None:
        """Prepare the connection; nothing is sent yet.

        Raises:
            UsageError: a certificate that cannot be read, a secret that is not in the environment.
        """
        self._config = config
        self._schemas: dict[int, RegisteredSchema] = {}
        self._references: dict[tuple[str, int], dict[str, Any]] = {}
        credentials = config.secret("basic_auth_from_env")
        headers = urllib3.make_headers(basic_auth=credentials) if credentials else {}
        self._http = urllib3.PoolManager(
            headers={**headers, "accept": _ACCEPT},
            timeout=config.timeout_s,
            retries=False,
            **_tls(config),
        )

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        """Return the schema of an id; None where the registry says that there is none.

        Raises:
            RunError: the registry does not answer in time, refuses the credentials, or is no registry.
        """
        if schema_id not in self._schemas:
            answer = self._get(f"/schemas/ids/{schema_id}", _NO_SCHEMA)
            if answer is None:
                return None
            self._schemas[schema_id] = self._registered(answer, f"/schemas/ids/{schema_id}")
        return self._schemas[schema_id]

    def _registered(self, answer: dict[str, Any], path: str) -> RegisteredSchema:
        texts: dict[str, str] = {}
        try:
            self._collect(answer, texts)
            return RegisteredSchema(answer.get("schemaType") or "AVRO", answer["schema"], texts)
        except (KeyError, TypeError) as error:
            what = f"{path} gave no whole schema"
            raise self._no_registry(what) from error

    def _collect(self, answer: dict[str, Any], texts: dict[str, str]) -> None:
        """Collect the references of a schema, each behind those that it needs itself."""
        for reference in answer.get("references") or ():
            if reference["name"] in texts:
                continue
            key = (str(reference["subject"]), int(reference["version"]))
            if key not in self._references:
                path = f"/subjects/{quote(key[0], safe='')}/versions/{key[1]}"
                found = self._get(path, _NO_SUBJECT, _NO_VERSION)
                if found is None:
                    msg = f"the Schema Registry {self._config.url} has no {path}, which another schema refers to"
                    raise RunError(msg, "nothing is lost: register it, then start again")
                self._references[key] = found
            self._collect(self._references[key], texts)
            texts[reference["name"]] = self._references[key]["schema"]

    def _get(self, path: str, *absent: int) -> dict[str, Any] | None:
        """Return the answer to a GET, asked until there is one; None where its error code is among `absent`."""
        deadline = time.monotonic() + self._config.retry_for_s
        pause = _FIRST_PAUSE_S
        while True:
            try:
                response = self._http.request("GET", self._config.url + path, redirect=False)
            except HTTPError as error:
                if isinstance(error, SSLError) and isinstance(error.args[0], ssl.SSLCertVerificationError):
                    raise self._untrusted(error) from error
                trouble = _first_line(error)
            else:
                if response.status < 500 and response.status not in _BUSY:
                    return self._answer(response.status, response.data, path, absent)
                trouble = f"status {response.status}"
            if time.monotonic() + pause > deadline:
                waited = f"{self._config.retry_for_s:g} s"
                msg = f"the Schema Registry {self._config.url} gave no answer for {waited}: {trouble}"
                raise RunError(msg, "nothing is lost: the batch was not committed; start again when it answers")
            log.warning("Schema Registry %s: %s; asking again", self._config.url, trouble)
            time.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _answer(self, status: int, body: bytes, path: str, absent: tuple[int, ...]) -> dict[str, Any] | None:
        if status in (401, 403):
            msg = f"the Schema Registry {self._config.url} refuses the credentials (status {status})"
            raise RunError(msg, "check the variable in kafka.registry.basic_auth_from_env; nothing is lost")
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        if isinstance(answer, dict):
            if status == 200:
                return answer
            if status == 404 and answer.get("error_code") in absent:
                return None
        what = f"{path} gave status {status}"
        raise self._no_registry(what)

    def _no_registry(self, what: str) -> RunError:
        msg = f"{self._config.url} does not answer as a Schema Registry: {what}"
        return RunError(msg, "correct kafka.registry.url; nothing is lost")

    def _untrusted(self, error: Exception) -> RunError:
        msg = f"no trusted connection to the Schema Registry {self._config.url}: {_first_line(error)}"
        return RunError(msg, "check kafka.registry.ca_file and certificate_file; nothing is lost")


def _tls(config: RegistryConfig) -> dict[str, Any]:
    if not config.url.startswith("https:"):
        return {}
    context = urllib3.util.create_urllib3_context()
    try:
        if config.ca_file:
            context.load_verify_locations(config.ca_file)
        else:
            context.load_default_certs()
        if config.certificate_file:
            context.load_cert_chain(
                config.certificate_file, config.key_file, config.secret("key_password_from_env") or ""
            )
    except OSError as error:  # an SSLError is one
        msg = f"kafka.registry: cannot read the certificates: {error}"
        raise UsageError(msg) from error
    return {"ssl_context": context}


def _first_line(error: Exception) -> str:
    return first_line(str(error)) or type(error).__name__
