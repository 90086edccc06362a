"""The kafka channel: CloudEvents in binary mode, one message per event, into a topic.

Source: CloudEvents Kafka protocol binding 1.0: attributes are headers `ce_...`, the value is the payload as it was sent in, `content-type`
is a header of its own. The message's key is the event's id, or what the channel's `key` finds in the payload; then it is the attribute
`partitionkey` too. Delivered means: all in-sync replicas have it.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from ...core.clock import to_text
from ...core.settings import Settings
from ..egress_guard import Egress
from ..kafka.connection import KafkaTokens, Login, identity_tokens, problem_of
from ..kafka.producer import TIMEOUT, Acknowledgement, Headers, Producer, ThreadedProducer
from . import cloudevents
from .content import JSON
from .model import KafkaChannel
from .ports import OutgoingDelivery, Target, Verdict

MAX_PRODUCERS = 64
"""Clusters that are kept open, each with threads of its own; above this number the least recently used one is closed."""

type OpenProducer = Callable[[Login], Awaitable[Producer]]
"""Opens a producer. If it raises, the attempt has failed."""

_FINAL = {
    "MSG_SIZE_TOO_LARGE": "the message is larger than the topic takes",
    "RECORD_LIST_TOO_LARGE": "the message is larger than the topic takes",
    "INVALID_MSG_SIZE": "the message is larger than the topic takes",
    "TOPIC_EXCEPTION": "the topic's name is not valid there",
    "INVALID_RECORD": "the broker finds the message invalid",
    "POLICY_VIOLATION": "the message is against the topic's policy",
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": "the broker is too old for messages with headers",
}
_RETRY = {
    # These may succeed later: the topic is created, the role is granted, or the cluster comes back.
    "_UNKNOWN_TOPIC": "no such topic",
    "UNKNOWN_TOPIC_OR_PART": "no such topic",
    "TOPIC_AUTHORIZATION_FAILED": "this service may not write to the topic",
    "CLUSTER_AUTHORIZATION_FAILED": "this service may not write to the cluster",
    "_AUTHENTICATION": "the login was refused",
    "SASL_AUTHENTICATION_FAILED": "the login was refused",
    "_MSG_TIMED_OUT": "not acknowledged in time",
    "_ALL_BROKERS_DOWN": "no broker can be reached",
    "_RESOLVE": "the brokers' names cannot be resolved",
    "_TRANSPORT": "the connection failed",
    "_SSL": "the TLS handshake failed",
}


def verdict_of(answer: Acknowledgement) -> Verdict:
    """Return the verdict on an acknowledgement. It uses this module's texts and the library's error names, never a broker's text."""
    if answer.error is None:
        return Verdict("delivered")
    if answer.error in _FINAL:
        return Verdict("final", None, f"kafka: {_FINAL[answer.error]} ({answer.error})")
    error = _worded(answer.error)
    return Verdict("retry", None, f"{error}; {_worded(answer.hint)}" if answer.hint is not None else error)


def _worded(name: str) -> str:
    return f"kafka: {_RETRY[name]} ({name})" if name in _RETRY else f"kafka: {name}"


def headers_of(target: Target, delivery: OutgoingDelivery, partition_key: str | None) -> Headers:
    """Return the event's attributes as headers. Values are plain UTF-8; unlike in HTTP they need no encoding."""
    found: list[tuple[str, bytes]] = [
        ("content-type", delivery.content_type.encode()),
        ("ce_specversion", cloudevents.SPEC_VERSION.encode()),
        ("ce_type", cloudevents.TYPE.encode()),
        ("ce_source", cloudevents.source(target).encode()),
        ("ce_id", delivery.id.encode()),
        ("ce_time", to_text(delivery.due).encode()),
        ("ce_tocsindue", to_text(delivery.due).encode()),
        ("ce_tocsinfired", to_text(delivery.fired).encode()),
        ("ce_tocsinlatems", b"%d" % delivery.late_ms),
        ("ce_tocsinattempt", b"%d" % delivery.attempt),
    ]
    if partition_key is not None:
        found.append(("ce_partitionkey", partition_key.encode(errors="replace")))
    if delivery.traceparent is not None:
        found.append(("traceparent", delivery.traceparent.encode(errors="replace")))
    return found


def partition_key(pointer: str | None, body: bytes) -> str | None:
    """Return the value that a JSON pointer (RFC 6901) finds in the payload, if it is a string, number or boolean; otherwise None."""
    if pointer is None:
        return None
    try:
        found: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        # Only numbers beyond a double are left; such a number is no key.
        found = json.loads(body, parse_float=_finite, parse_int=_finite)
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isascii() and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    if isinstance(found, str):
        return found or None
    return orjson.dumps(found).decode() if isinstance(found, bool | int | float) else None


def _finite(text: str) -> int | float | None:
    number = float(text)
    if math.isinf(number):
        return None
    return int(text) if text.lstrip("-").isdigit() else number


def login_of(spec: KafkaChannel) -> Login:
    """Return the login for the channel's cluster."""
    return Login(spec.servers, spec.tls, spec.username, spec.password)


class KafkaSender:
    """Sends kafka deliveries. Channels with the same login share a producer, opened when first needed and kept.

    `timeout`: seconds until a message is given up. `open_producer` is a seam for tests. `close` gives what is under way a few seconds.
    """

    def __init__(self, settings: Settings, *, open_producer: OpenProducer | None = None, timeout: float = TIMEOUT) -> None:
        self._egress = Egress(settings.egress_names)
        self._timeout = timeout
        self._tokens: KafkaTokens = identity_tokens(settings.client_id)
        self._open_producer: OpenProducer = open_producer or self._open
        self._producers: dict[Login, asyncio.Task[Producer]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def send(self, target: Target, delivery: OutgoingDelivery) -> Verdict:
        """Send one message and wait until it is acknowledged or given up; it is not sent again after that."""
        spec = target.spec
        if not isinstance(spec, KafkaChannel):
            raise TypeError(f"not a kafka channel: {spec.type}")
        login = login_of(spec)
        if found := problem_of(login, self._egress):
            return Verdict("final", None, f"the channel's {found[0]}: {found[1]}")
        try:
            producer = await self._producer(login)
        except Exception as error:
            # The library refused the settings, or there is no identity. Only the error's type is safe to show; the text might quote
            # anything.
            return Verdict("retry", None, f"kafka: the client cannot be opened ({type(error).__name__})")
        key = partition_key(spec.key, delivery.body) if delivery.content_type == JSON else None
        name = (key or delivery.id).encode(errors="replace")
        answer = await producer.put(spec.topic, name, delivery.body, headers_of(target, delivery, key))
        if answer.fatal:
            self._drop(login, producer)
        return verdict_of(answer)

    async def _producer(self, login: Login) -> Producer:
        # Moved to the end, so that the first one is the least recently used.
        task = self._producers.pop(login, None)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            while len(self._producers) >= MAX_PRODUCERS:
                self._retire(self._producers.pop(next(iter(self._producers))))
            task = asyncio.ensure_future(self._open_producer(login))
        self._producers[login] = task
        # Shielded: a cancelled delivery must not close the connection of the others.
        return await asyncio.shield(task)

    async def _open(self, login: Login) -> Producer:
        return await ThreadedProducer.open(login, self._tokens if login.by_identity else None, self._timeout)

    def _drop(self, login: Login, producer: Producer) -> None:
        task = self._producers.get(login)
        if task is not None and task.done() and not task.cancelled() and task.exception() is None and task.result() is producer:
            self._retire(self._producers.pop(login))

    def _retire(self, opened: asyncio.Task[Producer]) -> None:
        closing = asyncio.create_task(self._end(opened))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    @staticmethod
    async def _end(opened: asyncio.Task[Producer]) -> None:
        try:
            producer = await opened
        except Exception:
            return  # it was never opened, and the callers got the error
        await producer.close()

    async def close(self) -> None:
        """Close every producer; deliveries without an acknowledgement end as failed attempts."""
        opened, self._producers = list(self._producers.values()), {}
        for task in opened:
            self._retire(task)
        await asyncio.gather(*self._closing)
