"""A member of a consumer group, for an event loop: every call of librdkafka's consumer runs in one thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

from ...core.clock import Millis
from ...core.errors import TocsinError
from ...delivery.kafka.connection import KafkaTokens, Login, check_token, config

LONGEST_SILENCE = 120
"""Seconds without a `poll` after which the group gives this member's partitions to others."""


class SourceFailed(TocsinError):
    """Messages cannot be had: the topic is not there, the login is refused. The message holds the library's name for it."""


class Record(NamedTuple):
    """A message. `at`: its timestamp, as the producer or the broker set it; it is the same each time the message is read. `trace`: its
    header `traceparent`, if it has one."""

    partition: int
    offset: int
    at: Millis
    value: bytes
    trace: str | None = None


class Consumer(Protocol):
    """What ingest needs. Offsets are those of the next message to be read."""

    async def poll(self, limit: int, seconds: float) -> list[Record]:
        """Up to `limit` messages, as soon as there are any; none after `seconds`. SourceFailed."""

    async def commit(self, offsets: Mapping[int, int]) -> bool:
        """Note how far the group has come; False when it could not be noted: then others read these messages again."""

    async def seek(self, offsets: Mapping[int, int]) -> None:
        """Read on from here. Partitions that went to another member in the meantime are its affair."""

    def complaint(self) -> str | None:
        """What the connection complained of since this was last asked: the library's name of the error."""

    async def close(self) -> None:
        """Leave the group."""


class ThreadedConsumer:
    """A consumer of librdkafka, of one topic. Offsets are never committed but by `commit`."""

    def __init__(self, inner: Any, topic: str, thread: ThreadPoolExecutor, complaints: list[str]) -> None:
        self._inner, self._topic, self._thread, self._complaints = inner, topic, thread, complaints

    @classmethod
    async def open(cls, login: Login, topic: str, group: str, tokens: KafkaTokens | None) -> ThreadedConsumer:
        """A member of the group; it joins with its first `poll`. SourceFailed for settings the library refuses, NoToken."""
        complaints: list[str] = []
        thread = ThreadPoolExecutor(1, thread_name_prefix="tocsin-kafka")

        def make() -> Any:
            from confluent_kafka import Consumer as Inner
            from confluent_kafka import KafkaException

            settings = config(login, tokens) | {
                "group.id": group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                # A group that is new has committed nothing: what was sent before it came is for it, too.
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 30_000,
                "max.poll.interval.ms": LONGEST_SILENCE * 1000,
                "queued.max.messages.kbytes": 16_384,
                "error_cb": lambda error: complaints.append(error.name()),
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
        return cls(inner, topic, thread, complaints)

    async def _call[T](self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def poll(self, limit: int, seconds: float) -> list[Record]:
        return await self._call(lambda: self._poll(limit, seconds))

    def _poll(self, limit: int, seconds: float) -> list[Record]:
        # `consume` waits for all it was asked for; this way the first message is not held up by those that do not come.
        first = self._inner.poll(seconds)
        if first is None:
            return []
        found: list[Record] = []
        for message in [first, *self._inner.consume(limit - 1, 0.0)]:
            error = message.error()
            if error is None:
                kind, at = message.timestamp()
                trace = _trace_of(message.headers())
                found.append(Record(message.partition(), message.offset(), at if kind else 0, message.value() or b"", trace))
            elif error.name() == "_MAX_POLL_EXCEEDED":
                self._complaints.append(error.name())  # the next poll joins the group again
            elif found:
                self._complaints.append(error.name())  # first what was read; a lasting error shows again
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
            self._complaints.append(raised.args[0].name())
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
                # Not ours any more: who has it now starts from what was committed.
                self._complaints.append(raised.args[0].name())

    def complaint(self) -> str | None:
        last = self._complaints[-1] if self._complaints else None
        self._complaints.clear()
        return last

    async def close(self) -> None:
        try:
            await self._call(self._inner.close)
        finally:
            self._thread.shutdown(wait=False)


def _trace_of(headers: Iterable[tuple[str, str | bytes | None]] | None) -> str | None:
    """The first header of that name, as producers write it."""
    for name, value in headers or ():
        if name.lower() == "traceparent" and value is not None:
            return value.decode(errors="replace") if isinstance(value, bytes) else value
    return None
