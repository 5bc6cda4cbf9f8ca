"""Configuration of the Schema Registry client."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from kbit_spark.errors import UsageError
from kbit_spark.schemas.base import Frozen


class RegistryConfig(Frozen):
    """The Schema Registry that knows the ids in Confluent headers; its secrets stand in the environment."""

    url: str
    basic_auth_from_env: str | None = None
    """Variable that holds user:password."""

    ca_file: str | None = None
    """Certificates (PEM) that the registry's own is checked against; none: those of the system."""

    certificate_file: str | None = None
    """Certificate (PEM) that the client shows."""

    key_file: str | None = None
    """Private key (PEM) of `certificate_file`."""

    key_password_from_env: str | None = None
    """Variable that holds the password of `key_file`."""

    timeout_s: float = Field(default=10.0, gt=0)
    """Wait for one answer."""

    retry_for_s: float = Field(default=60.0, ge=0)
    """How long a request is repeated while the registry does not answer; then the query stops, and nothing is lost."""

    @field_validator("url")
    @classmethod
    def _plain(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            msg = f"{parts.scheme}://{parts.hostname or ''} is no http or https address"
            raise ValueError(msg)
        if "@" in url:  # also behind a / that a password holds
            msg = "the address would hold a secret in clear text; name its variable in basic_auth_from_env"
            raise ValueError(msg)
        return url.rstrip("/")

    @model_validator(mode="after")
    def _key_with_certificate(self) -> RegistryConfig:
        if (self.certificate_file is None) != (self.key_file is None):
            msg = "certificate_file and key_file belong together"
            raise ValueError(msg)
        return self

    def secret(self, option: str) -> str | None:
        """Return the secret that an option's variable holds; None where the option is not set. Never log the result.

        Raises:
            UsageError: the variable is not set.
        """
        variable = getattr(self, option)
        if variable is None:
            return None
        if variable not in os.environ:
            msg = f"kafka.registry.{option}: {variable} not set in the environment"
            raise UsageError(msg, "export it before the start")
        return os.environ[variable]
