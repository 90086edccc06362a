"""A member of a Kafka consumer group for an event loop. Every call of librdkafka's consumer runs in one separate thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

from ...core.clock import Millis
from ...core.errors import TocsinError
from ...delivery.kafka.connection import KafkaTokens, Login, check_token, config

SESSION_TIMEOUT = 30
"""Seconds without a heartbeat after which the group takes this member for dead."""
MAX_POLL_INTERVAL = 120
"""Seconds without a `poll` after which the group gives this member's partitions to other members."""


class SourceFailed(TocsinError):
    """Raised if messages cannot be read: the topic does not exist, or the login is refused. The text is librdkafka's error name."""


class KafkaMessage(NamedTuple):
    """A message of a topic. `at`: its timestamp, set by the producer or the broker; it does not change between reads. `trace`: its
    header `traceparent`, or None."""

    partition: int
    offset: int
    at: Millis
    value: bytes
    trace: str | None = None


class Consumer(Protocol):
    """The port to a topic. Offsets are those of the next message to read, by partition."""

    async def poll(self, limit: int, seconds: float) -> list[KafkaMessage]:
        """Return up to `limit` messages as soon as there are any; none after `seconds`. Raises SourceFailed."""

    async def commit(self, offsets: Mapping[int, int]) -> bool:
        """Commit the offsets of the group. Returns False if that failed: then the messages are read again."""

    async def seek(self, offsets: Mapping[int, int]) -> None:
        """Continue reading at these offsets. Partitions that another member owns meanwhile are skipped."""

    def last_error(self) -> str | None:
        """Return librdkafka's name of the last error since the previous call, or None."""

    async def close(self) -> None:
        """Leave the group."""


class ThreadedConsumer:
    """A consumer of librdkafka for one topic. Only `commit` commits offsets."""

    def __init__(self, inner: Any, topic: str, thread: ThreadPoolExecutor, errors: list[str]) -> None:
        self._inner, self._topic, self._thread, self._errors = inner, topic, thread, errors

    @classmethod
    async def open(cls, login: Login, topic: str, group: str, tokens: KafkaTokens | None) -> ThreadedConsumer:
        """Create a member of the group, which joins with its first `poll`. Raises NoToken, and SourceFailed for refused settings."""
        errors: list[str] = []
        thread = ThreadPoolExecutor(1, thread_name_prefix="tocsin-kafka")

        def make() -> Any:
            from confluent_kafka import Consumer as Inner
            from confluent_kafka import KafkaException

            settings = config(login, tokens) | {
                "group.id": group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                # A new group has no committed offsets. It also reads messages that were sent before it existed.
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_TIMEOUT * 1000,
                "max.poll.interval.ms": MAX_POLL_INTERVAL * 1000,
                "queued.max.messages.kbytes": 16_384,
                "error_cb": lambda error: errors.append(error.name()),
            }
            check_token(login, tokens)
            try:
                inner = Inner(settings)
                inner.subscribe([topic])
            except KafkaException as raised:
                raise SourceFailed(raised.args[0].name()) from None
            return inner

        try:
            inner = await asyncio.get_running_loop().run_in_executor(thread, make)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return cls(inner, topic, thread, errors)

    async def _call[T](self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def poll(self, limit: int, seconds: float) -> list[KafkaMessage]:
        return await self._call(lambda: self._poll(limit, seconds))

    def _poll(self, limit: int, seconds: float) -> list[KafkaMessage]:
        # `consume` waits for all it was asked for; this way the first message is not held up by those that do not come.
        first = self._inner.poll(seconds)
        if first is None:
            return []
        found: list[KafkaMessage] = []
        for message in [first, *self._inner.consume(limit - 1, 0.0)]:
            error = message.error()
            if error is None:
                kind, at = message.timestamp()
                trace = _trace_of(message.headers())
                found.append(KafkaMessage(message.partition(), message.offset(), at if kind else 0, message.value() or b"", trace))
            elif error.name() == "_MAX_POLL_EXCEEDED":
                self._errors.append(error.name())  # The next poll joins the group again.
            elif found:
                self._errors.append(error.name())  # Return the messages first; a lasting error occurs again.
            else:
                raise SourceFailed(error.name())
        return found

    async def commit(self, offsets: Mapping[int, int]) -> bool:
        return await self._call(lambda: self._commit(offsets))

    def _commit(self, offsets: Mapping[int, int]) -> bool:
        from confluent_kafka import KafkaException

        try:
            done = self._inner.commit(offsets=self._places(offsets), asynchronous=False)
        except KafkaException as raised:
            self._errors.append(raised.args[0].name())
            return False
        return all(place.error is None for place in done or ())

    def _places(self, offsets: Mapping[int, int]) -> list[Any]:
        from confluent_kafka import TopicPartition

        return [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]

    async def seek(self, offsets: Mapping[int, int]) -> None:
        await self._call(lambda: self._seek(offsets))

    def _seek(self, offsets: Mapping[int, int]) -> None:
        from confluent_kafka import KafkaException

        for place in self._places(offsets):
            try:
                self._inner.seek(place)
            except KafkaException as raised:
                # Another member owns the partition now, and starts from the committed offset.
                self._errors.append(raised.args[0].name())

    def last_error(self) -> str | None:
        last = self._errors[-1] if self._errors else None
        self._errors.clear()
        return last

    async def close(self) -> None:
        try:
            await self._call(self._inner.close)
        finally:
            self._thread.shutdown(wait=False)


def _trace_of(headers: Iterable[tuple[str, str | bytes | None]] | None) -> str | None:
    """Return the first header `traceparent`, in any case, or None."""
    for name, value in headers or ():
        if name.lower() == "traceparent" and value is not None:
            return value.decode(errors="replace") if isinstance(value, bytes) else value
    return None
