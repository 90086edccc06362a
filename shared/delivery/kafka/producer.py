"""Puts messages to a cluster from an event loop.

`produce` of librdkafka only queues; a thread of our own waits for the brokers' answers and hands them to the loop, all that lie there in
one wake-up. Each message ends within its time-out: acknowledged by all in-sync replicas (`acks=all`, idempotent, so that the library's own
retries neither double nor reorder), or given up and never sent again.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Any, NamedTuple, Protocol

from .connection import Login, Tokens, check_token, config

TIMEOUT = 15.0
"""Seconds until a message that was not acknowledged is given up, by default."""
LINGER_MS = 2
_SLACK = 5.0
_POLL = 0.5
"""Seconds of one wait for answers; an answer ends it at once."""
_LOOK = 3.0
"""Seconds that the look for a missing topic may take."""
_FLUSH = 5.0
"""Seconds that `close` waits for what is under way."""


class Acknowledgement(NamedTuple):
    """How a message ended: `error` is None or the library's name for what went wrong (`MSG_SIZE_TOO_LARGE`, `_MSG_TIMED_OUT`)."""

    error: str | None = None
    fatal: bool = False
    """The producer is of no more use."""
    hint: str | None = None
    """What the connection last complained of, when the error itself says little."""


type Headers = list[tuple[str, bytes]]


class Producer(Protocol):
    """What the channel needs."""

    async def put(self, topic: str, key: bytes, value: bytes, headers: Headers) -> Acknowledgement:
        """Send one message and wait for its end. Never raises for what a broker does."""

    async def close(self) -> None:
        """Wait a bounded time for what is under way; then let go."""


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
    async def open(cls, login: Login, tokens: Tokens | None, timeout: float = TIMEOUT) -> ThreadedProducer:
        """A producer whose messages have `timeout` seconds; nothing is connected yet.

        KafkaException for settings the library refuses, NoToken.
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
                # The same key goes to the same partition whichever client sends it: Java's choice.
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
        """Ask the brokers for a topic that was missing: by itself the library may not for minutes, and refuses all messages until then."""
        try:
            self._inner.list_topics(topic, _LOOK)
        except _kafka_exception() as error:
            # Whether it is there now is for the next attempt to find out.
            self._complain(error.args[0].name())

    def _judged(self, error: Any) -> Acknowledgement:
        return Acknowledgement(error.name(), error.fatal(), self._last if error.name() == "_MSG_TIMED_OUT" else None)

    def _complain(self, name: str) -> None:
        self._last = name

    def _answer(self, future: asyncio.Future[Acknowledgement], error: Any) -> None:
        """In the thread: put the answer where the loop finds it, and wake the loop unless it is on its way."""
        if error is None:
            self._last = None
        self._answers.append((future, Acknowledgement() if error is None else self._judged(error)))
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        # First the flag: what is put after this line wakes the loop again, what was put before is taken below.
        self._woken = False
        while self._answers:
            future, answer = self._answers.popleft()
            if not future.done():
                future.set_result(answer)

    def _serve(self) -> None:
        while not self._closing:
            self._inner.poll(_POLL)

    async def close(self) -> None:
        """Give what is under way 5 s, then drop it: its senders hear `_PURGE_QUEUE` or time out."""
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
