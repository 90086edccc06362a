"""Sends messages to a cluster from an event loop.

`produce` of librdkafka only queues. A thread waits for the brokers' answers and passes them to the loop, all pending ones in one wake-up.
Each message ends within its time-out: acknowledged by all in-sync replicas (`acks=all`, idempotent, so that the library's own retries
neither duplicate nor reorder), or given up and never sent again.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Any, NamedTuple, Protocol

from .connection import KafkaTokens, Login, check_token, config

TIMEOUT = 15.0
"""Seconds after which an unacknowledged message is given up, by default."""
LINGER_MS = 2
_SLACK = 5.0
_POLL = 0.5
"""Seconds of one wait for answers; an answer ends it at once."""
_LOOK = 3.0
"""Time limit in seconds for looking up a missing topic."""
_FLUSH = 5.0
"""Seconds that `close` waits for messages that are being sent."""


class Acknowledgement(NamedTuple):
    """The result of a message: `error` is None or the library's name for the error (`MSG_SIZE_TOO_LARGE`, `_MSG_TIMED_OUT`)."""

    error: str | None = None
    fatal: bool = False
    """True if the producer cannot be used any more."""
    hint: str | None = None
    """The connection's last error, for an error that says little itself."""


type Headers = list[tuple[str, bytes]]


class Producer(Protocol):
    """The part of a producer that the channel needs."""

    async def put(self, topic: str, key: bytes, value: bytes, headers: Headers) -> Acknowledgement:
        """Send one message and wait for its result. Never raises for a broker's behaviour."""

    async def close(self) -> None:
        """Wait a limited time for messages that are being sent, then close."""


class ThreadedProducer:
    """A producer of librdkafka. Belongs to the event loop that made it with `open`."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop, timeout: float = TIMEOUT) -> None:
        self._inner, self._loop, self._timeout = inner, loop, timeout
        self._answers: deque[tuple[asyncio.Future[Acknowledgement], Acknowledgement]] = deque()
        self._woken = False
        self._closing = False
        self._last: str | None = None
        self._thread = threading.Thread(target=self._serve, name="tocsin-kafka", daemon=True)

    @classmethod
    async def open(cls, login: Login, tokens: KafkaTokens | None, timeout: float = TIMEOUT) -> ThreadedProducer:
        """Return a producer that gives its messages `timeout` seconds; it does not connect yet.

        Raises KafkaException if the library refuses the settings, and NoToken.
        """
        loop = asyncio.get_running_loop()
        found: list[ThreadedProducer] = []

        def make() -> ThreadedProducer:
            from confluent_kafka import Producer as Inner

            settings = config(login, tokens) | {
                "enable.idempotence": True,
                "linger.ms": LINGER_MS,
                "message.timeout.ms": int(timeout * 1000),
                "topic.metadata.propagation.max.ms": 3_000,
                # Every client sends the same key to the same partition: Java's choice of hash.
                "partitioner": "murmur2_random",
                "error_cb": lambda error: found[0]._complain(error.name()) if found else None,
            }
            check_token(login, tokens)
            made = cls(Inner(settings), loop, timeout)
            found.append(made)
            made._thread.start()
            return made

        # With an identity the library waits for its first token.
        return await asyncio.to_thread(make)

    async def put(self, topic: str, key: bytes, value: bytes, headers: Headers) -> Acknowledgement:
        future: asyncio.Future[Acknowledgement] = self._loop.create_future()
        try:
            self._inner.produce(topic, value, key, headers=headers, on_delivery=lambda error, _: self._answer(future, error))
        except BufferError:
            return Acknowledgement("_QUEUE_FULL")
        except _kafka_exception() as raised:
            return self._judged(raised.args[0])
        try:
            async with asyncio.timeout(self._timeout + _SLACK):
                answer = await future
        except TimeoutError:
            return Acknowledgement("_MSG_TIMED_OUT", hint=self._last)
        if answer.error == "_UNKNOWN_TOPIC":
            await asyncio.to_thread(self._look, topic)
        return answer

    def _look(self, topic: str) -> None:
        """Ask the brokers for a topic that was missing. The library itself may wait minutes, and refuses all messages until then."""
        try:
            self._inner.list_topics(topic, _LOOK)
        except _kafka_exception() as error:
            # The next attempt finds out if the topic exists now.
            self._complain(error.args[0].name())

    def _judged(self, error: Any) -> Acknowledgement:
        return Acknowledgement(error.name(), error.fatal(), self._last if error.name() == "_MSG_TIMED_OUT" else None)

    def _complain(self, name: str) -> None:
        self._last = name

    def _answer(self, future: asyncio.Future[Acknowledgement], error: Any) -> None:
        """In the thread: store the answer for the loop, and wake the loop unless a wake-up is pending."""
        if error is None:
            self._last = None
        self._answers.append((future, Acknowledgement() if error is None else self._judged(error)))
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        # The flag is cleared first: answers stored after this line wake the loop again, earlier ones are taken below.
        self._woken = False
        while self._answers:
            future, answer = self._answers.popleft()
            if not future.done():
                future.set_result(answer)

    def _serve(self) -> None:
        while not self._closing:
            self._inner.poll(_POLL)

    async def close(self) -> None:
        """Wait 5 s for messages that are being sent, then drop them: their senders get `_PURGE_QUEUE` or time out."""
        if self._closing:
            return
        await asyncio.to_thread(self._close)
        self._settle()

    def _close(self) -> None:
        self._inner.flush(_FLUSH)
        self._closing = True
        self._thread.join()
        self._inner.purge()
        self._inner.flush(0.1)


def _kafka_exception() -> type[Exception]:
    from confluent_kafka import KafkaException

    return KafkaException
