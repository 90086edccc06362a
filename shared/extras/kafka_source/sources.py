"""The setting `TOCSIN_KAFKA_SOURCES`: Kafka topics that hold events, each with the tenant that owns the events.

A JSON array: `[{"servers": "name.servicebus.windows.net:9093", "topic": "orders", "tenant": "acme", "uid": "0123456789abcdef"}]`. A message
needs no key: anyone who may write to the topic may create events of the tenant. Another tenant that is made under the name has another uid,
and gets none of them.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import ConfigDict, SecretStr, StringConstraints, TypeAdapter, ValidationError, model_validator

from ...core.errors import UnsafeSettings
from ...delivery.channels.model import KAFKA_SERVERS, KAFKA_TOPIC
from ...delivery.kafka.connection import Login, is_azure, split
from ...web.fields.types import Name, Strict

_SETTING = "TOCSIN_KAFKA_SOURCES"


class KafkaSource(Strict):
    """A topic, the consumer group that reads it, and the tenant that owns its events."""

    model_config = ConfigDict(hide_input_in_errors=True, frozen=True)

    servers: Annotated[str, StringConstraints(pattern=KAFKA_SERVERS, max_length=1024)]
    topic: Annotated[str, StringConstraints(pattern=KAFKA_TOPIC)]
    tenant: Name
    uid: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")] = ""
    """The tenant's uid. Only on the emulator it may be left out, for whichever tenant has the name."""
    group: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._$-]{1,249}$")] = "tocsin"
    tls: bool = True
    username: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    password: SecretStr | None = None

    @model_validator(mode="after")
    def _sound(self) -> Self:
        split(self.servers)
        if (self.username is None) != (self.password is None):
            raise ValueError("give both username and password, or neither")
        if is_azure(self.servers) and not self.tls:
            raise ValueError("Event Hubs needs tls")
        return self

    @property
    def login(self) -> Login:
        """The servers and credentials of the cluster."""
        return Login(self.servers, self.tls, self.username, self.password.get_secret_value() if self.password else None)

    @property
    def name(self) -> str:
        """The name of the source in logs and errors."""
        return f"{self.topic} at {self.servers}"


_SOURCES: TypeAdapter[tuple[KafkaSource, ...]] = TypeAdapter(tuple[KafkaSource, ...])


def read_sources(text: str, *, emulated: bool) -> tuple[KafkaSource, ...]:
    """Return the sources of the setting's value; a blank value has none. Raises UnsafeSettings, without quoting any value."""
    if not text.strip():
        return ()
    try:
        found = _SOURCES.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        where = "/".join(str(part) for part in first["loc"])
        raise UnsafeSettings(f"{_SETTING}: {f'{where}: ' if where else ''}{first['msg']}") from None
    if not emulated and (bare := next((at for at, source in enumerate(found) if not source.uid), None)) is not None:
        raise UnsafeSettings(f"{_SETTING}: {bare}/uid: give the tenant's uid, which `tocsin tenants get` shows")
    seen = [(source.servers, source.group, source.topic) for source in found]
    if len(set(seen)) != len(seen):
        raise UnsafeSettings(f"{_SETTING}: a topic occurs twice with the same servers and group, so that two tenants would own its events")
    return found
