"""A namespace of Azure Service Bus in memory: its REST interface for sending, as Microsoft documents it.

namespace = FakeNamespace("orders.servicebus.windows.net", keys={"sender": "secret"})
namespace.add("alarms", sessions=True)
sender = ServiceBusSender(settings, client=FakeBusClient(namespace))
...
assert [message.id for message in namespace.received("alarms")] == ["order-17"]
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote_plus

from ..core.clock import Clock, SystemClock
from ..core.http1.answer import AnswerReader
from ..delivery.channels.guarded_client import Exchange
from ..delivery.channels.ports import OutgoingDelivery, Verdict

_SIGNED = "SharedAccessSignature "
_BEARER = "Bearer "


class BusMessage(NamedTuple):
    """A message that a queue or topic has accepted."""

    id: str | None
    session: str | None
    subject: str | None
    seconds: float | None
    """Time to live."""
    content_type: str
    properties: dict[str, Any]
    """The application properties."""
    body: bytes


class BusAnswer(NamedTuple):
    """An answer of the namespace."""

    status: int
    headers: dict[str, str]
    body: bytes

    def encode(self) -> bytes:
        """Return the bytes of the answer."""
        fields = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        return f"HTTP/1.1 {self.status} Answer\r\n{fields}content-length: {len(self.body)}\r\n\r\n".encode() + self.body


@dataclass(slots=True)
class _Entity:
    sessions: bool
    max_bytes: int
    detects_duplicates: bool
    script: list[BusAnswer] = field(default_factory=list)
    messages: list[BusMessage] = field(default_factory=list)


def _error(status: int, code: int, text: str) -> BusAnswer:
    body = f"<Error><Code>{status}</Code><Detail>{code}: {text}</Detail></Error>".encode()
    return BusAnswer(status, {"content-type": "application/xml; charset=utf-8"}, body)


class FakeNamespace:
    """A namespace with access keys (name to key) and the bearer tokens that it accepts."""

    def __init__(
        self, host: str, clock: Clock | None = None, *, keys: Mapping[str, str] | None = None, tokens: Collection[str] = ()
    ) -> None:
        self.host, self.keys, self.tokens = host, dict(keys or {}), set(tokens)
        self._clock: Clock = clock or SystemClock()
        self._entities: dict[str, _Entity] = {}

    def add(self, entity: str, *, sessions: bool = False, max_bytes: int = 256 * 1024, detects_duplicates: bool = False) -> None:
        """Make a queue or topic. max_bytes: of a message with its properties."""
        self._entities[entity] = _Entity(sessions, max_bytes, detects_duplicates)

    def script(self, entity: str, *answers: BusAnswer) -> None:
        """Give the next requests to this queue or topic these answers; nothing is stored for them."""
        self._entities[entity].script += answers

    def received(self, entity: str) -> list[BusMessage]:
        """Return the accepted messages in their order."""
        return list(self._entities[entity].messages)

    def answer(self, line: str, headers: Mapping[str, str], body: bytes) -> BusAnswer:
        """Answer a request. line: its first line; headers: with names in lower case."""
        method, path, _ = line.split(" ")
        name, _, action = path.partition("?")[0].removeprefix("/").rpartition("/")
        if (refused := self._unauthorized(f"https://{headers['host']}/{name}", headers.get("authorization", ""))) is not None:
            return refused
        entity = self._entities.get(name)
        if entity is None or action != "messages" or method != "POST":
            return _error(404, 40400, "The messaging entity could not be found.")
        if entity.script:
            return entity.script.pop(0)
        try:
            own = json.loads(headers.get("brokerproperties", "{}"))
            properties = {key: _value(value) for key, value in headers.items() if key.startswith("cloudevents_")}
        except ValueError:
            return _error(400, 40000, "A header is not valid.")
        if any(len(own.get(key) or "") > 128 for key in ("MessageId", "SessionId")):
            return _error(400, 40000, "An id has more than 128 characters.")
        if entity.sessions != ("SessionId" in own):
            return _error(400, 40000, "The session id is missing, or the entity has no sessions.")
        if len(body) + sum(len(key) + len(value) for key, value in headers.items()) > entity.max_bytes:
            return _error(413, 41300, "The message is too large.")
        found = BusMessage(
            own.get("MessageId"), own.get("SessionId"), own.get("Label"), own.get("TimeToLive"), headers["content-type"], properties, body
        )
        if not entity.detects_duplicates or found.id not in {message.id for message in entity.messages}:
            entity.messages.append(found)
        return BusAnswer(201, {}, b"")

    def _unauthorized(self, resource: str, given: str) -> BusAnswer | None:
        if given.startswith(_BEARER):
            return None if given.removeprefix(_BEARER) in self.tokens else _error(401, 40104, "'Send' claim is required.")
        parts = {name: values[0] for name, values in parse_qs(given.removeprefix(_SIGNED)).items()}
        key = self.keys.get(parts.get("skn", ""))
        if not given.startswith(_SIGNED) or key is None or not {"sr", "sig", "se"} <= parts.keys():
            return _error(401, 40100, "There is no usable token.")
        text = f"{quote_plus(parts['sr'])}\n{parts['se']}"
        expected = base64.b64encode(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()).decode()
        if not hmac.compare_digest(expected, parts["sig"]):
            return _error(401, 40103, "The signature is not valid.")
        if int(parts["se"]) * 1000 <= self._clock.now() or not f"{resource}/".startswith(parts["sr"].rstrip("/") + "/"):
            return _error(401, 40105, "The token has expired, or is for something else.")
        return None


def _value(text: str) -> Any:
    """Return the value of an application property: texts stand in quotes."""
    return json.loads(text)


class FakeBusClient:
    """Sends requests to namespaces in memory, without a connection."""

    def __init__(self, *namespaces: FakeNamespace) -> None:
        self._namespaces = {each.host: each for each in namespaces}
        self.closed = False

    async def send(self, exchange: Exchange, delivery: OutgoingDelivery) -> Verdict:
        """See `guarded_client.Client`."""
        namespace = self._namespaces.get(exchange.place.host)
        if namespace is None:
            return Verdict("retry", None, f"{exchange.shown}: the host's name could not be resolved")
        head, _, body = exchange.request(delivery).partition(b"\r\n\r\n")
        line, *fields = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in fields)}
        answer = exchange.reader() or AnswerReader()
        answer.feed(namespace.answer(line, headers, body).encode())
        return exchange.judge(answer, delivery)

    async def close(self) -> None:
        """Note that it was closed."""
        self.closed = True
