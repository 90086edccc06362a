"""The setting `TOCSIN_KAFKA_SOURCES`: topics whose messages are events, and whose they are.

A JSON array: `[{"servers": "name.servicebus.windows.net:9093", "topic": "orders", "tenant": "acme"}]`. Who sets it vouches for the tenant:
a message needs no key, so whoever may write to the topic may make events of the tenant.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import ConfigDict, SecretStr, StringConstraints, TypeAdapter, ValidationError, model_validator

from ...core.errors import UnsafeSettings
from ...delivery.kafka.connection import Login, is_azure, split
from ...delivery.kafka.names import SERVERS, TOPIC
from ...web.fields.types import Name, Strict

SETTING = "TOCSIN_KAFKA_SOURCES"


class Source(Strict):
    """A topic, the consumer group that reads it, and the tenant that its messages are events of."""

    model_config = ConfigDict(hide_input_in_errors=True, frozen=True)

    servers: Annotated[str, StringConstraints(pattern=SERVERS, max_length=1024)]
    topic: Annotated[str, StringConstraints(pattern=TOPIC)]
    tenant: Name
    group: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._$-]{1,249}$")] = "tocsin"
    tls: bool = True
    username: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    password: SecretStr | None = None

    @model_validator(mode="after")
    def _sound(self) -> Self:
        split(self.servers)
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password come together")
        if is_azure(self.servers) and not self.tls:
            raise ValueError("Event Hubs needs tls")
        return self

    @property
    def login(self) -> Login:
        """The way into the cluster."""
        return Login(self.servers, self.tls, self.username, self.password.get_secret_value() if self.password else None)

    @property
    def name(self) -> str:
        """For logs and errors."""
        return f"{self.topic} at {self.servers}"


_SOURCES: TypeAdapter[tuple[Source, ...]] = TypeAdapter(tuple[Source, ...])


def read_sources(text: str) -> tuple[Source, ...]:
    """The sources of a setting's value; blank is none. UnsafeSettings says what is wrong and where, and quotes nothing."""
    if not text.strip():
        return ()
    try:
        found = _SOURCES.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        where = "/".join(str(part) for part in first["loc"])
        raise UnsafeSettings(f"{SETTING}: {f'{where}: ' if where else ''}{first['msg']}") from None
    seen = [(source.servers, source.group, source.topic) for source in found]
    if len(set(seen)) != len(seen):
        raise UnsafeSettings(f"{SETTING}: a topic is named twice with the same servers and group: its messages would be of two tenants")
    return found
