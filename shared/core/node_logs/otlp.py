"""Log lines by OTLP over HTTP, as JSON: https://opentelemetry.io/docs/specs/otlp/#otlphttp.

`emit` only appends to a queue. A thread of its own sends batches and repeats a batch that was not accepted, with back-off and jitter. The
queue is bounded: the oldest lines are dropped first, and counted.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from random import random
from typing import Any, Final, Literal, NamedTuple

from .. import backoff
from ..http_exchange import HttpReply, TransportFailure, exchange
from ..tls import client_tls
from .lines import LogLine, Value, line_of

log = logging.getLogger(__name__)

MAX_LINES: Final = 2048
"""Lines that wait in memory."""
MAX_BYTES: Final = 4 * 1024 * 1024
"""Characters of waiting lines, roughly."""
BATCH_LINES: Final = 256
BATCH_BYTES: Final = 512 * 1024
LINGER: Final = 1.0
"""Seconds for which lines are collected before they are sent."""
REQUEST: Final = 10.0
"""Seconds for one request."""
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
LONGEST_ASKED: Final = 300.0
"""Longest pause in seconds that a `Retry-After` of the collector can ask for."""
FLUSH: Final = 5.0
"""Seconds that the end of the process waits for the last lines."""
ANSWER: Final = 64 * 1024
"""Largest answer in bytes that is read."""
_RETRIED: Final = (408, 429, 502, 503, 504)
"""A collector that answers otherwise will not accept the same lines later."""
_SEVERITIES: Final = ((logging.CRITICAL, 21), (logging.ERROR, 17), (logging.WARNING, 13), (logging.INFO, 9), (0, 5))

type Exchange = Callable[..., HttpReply | TransportFailure]


class Verdict(NamedTuple):
    """The meaning of an answer. refused: number of lines that were not accepted. pause: least seconds before the next attempt."""

    outcome: Literal["sent", "refused", "later"]
    refused: int = 0
    pause: float = 0.0
    reason: str = ""


def body_of(lines: Sequence[LogLine], resource: Mapping[str, str]) -> bytes:
    """Return the request's body. Integers of 64 bits are texts, as JSON of protobuf requires."""
    scopes: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        scopes.setdefault(line.logger, []).append(_record(line))
    logs = [{"scope": {"name": name}, "logRecords": records} for name, records in scopes.items()]
    body = {"resourceLogs": [{"resource": {"attributes": _attributes(resource)}, "scopeLogs": logs}]}
    return json.dumps(body, separators=(",", ":")).encode()


def _record(line: LogLine) -> dict[str, Any]:
    number = next(number for least, number in _SEVERITIES if line.level >= least)
    return {
        "timeUnixNano": str(line.at_ns),
        "severityNumber": number,
        "severityText": logging.getLevelName(line.level),
        "body": {"stringValue": line.text},
        "attributes": _attributes(line.fields),
    }


def _attributes(fields: Mapping[str, Value]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in fields.items()]


def _value(value: Value) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    # JSON has no NaN.
    return {"doubleValue": value} if isinstance(value, float) and math.isfinite(value) else {"stringValue": str(value)}


def judge(answer: HttpReply | TransportFailure, count: int) -> Verdict:
    """Return the meaning of the answer to a batch of `count` lines."""
    if isinstance(answer, TransportFailure):
        return Verdict("later", reason=answer.reason)
    if 200 <= answer.status < 300:
        return Verdict("sent", min(count, _rejected(answer.body)))
    if answer.status in _RETRIED:
        asked = answer.headers.get("retry-after", "")
        pause = min(LONGEST_ASKED, float(asked)) if asked.isascii() and asked.isdigit() and len(asked) < 10 else 0.0
        return Verdict("later", pause=pause, reason=f"status {answer.status}")
    return Verdict("refused", count, reason=f"status {answer.status}")


def _rejected(body: bytes) -> int:
    try:
        return max(0, int(json.loads(body)["partialSuccess"]["rejectedLogRecords"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return 0


class Collector(NamedTuple):
    """The collector that gets the lines. url: the whole address. resource: attributes of all lines together."""

    url: str
    headers: Mapping[str, str]
    resource: Mapping[str, str]


class SentLines(NamedTuple):
    """The part of a line that is sent beside its text. about: its fields. secrets: texts that are hidden in it."""

    about: Mapping[str, str]
    secrets: Sequence[str] = ()


class SendWaits(NamedTuple):
    """Seconds that lines are collected, and of the pause after the first failure."""

    linger: float = LINGER
    first_pause: float = FIRST_PAUSE


class OtlpHandler(logging.Handler):
    """Sends lines to a collector. counts: lines that were `sent`, `refused` by the collector, and `dropped` unsent."""

    def __init__(
        self,
        collector: Collector,
        lines: SentLines,
        *,
        ask: Exchange = exchange,
        steady: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random,
        waits: SendWaits | None = None,
    ) -> None:
        super().__init__(logging.INFO)
        self._url, headers, self._resource = collector
        self._about, self._secrets = lines
        self._headers = {**headers, "Content-Type": "application/json", "User-Agent": "tocsin-node"}
        self._tls = client_tls() if self._url.startswith("https:") else None
        self._ask, self._steady, self._chance = ask, steady, chance
        self._linger, self._first_pause = waits or SendWaits()
        self.counts: Counter[str] = Counter()
        self._away = False
        self._end = math.inf
        self._reset()
        _handlers.add(self)

    def _reset(self) -> None:
        """Begin with an empty queue and without a thread: at the start, and in a forked child, which must not send its parent's lines."""
        self._bell = threading.Condition()
        self._waiting: deque[LogLine] = deque()
        self._bytes = 0
        self._thread: threading.Thread | None = None

    # -- any thread

    def emit(self, record: logging.LogRecord) -> None:
        """Append a line to the queue. Never waits for the collector, and raises nothing."""
        try:
            line = line_of(record, self._about, self._secrets)
        except Exception:
            self.handleError(record)
            return
        with self._bell:
            if self._end < math.inf:
                self.counts["dropped"] += 1
                return
            self._waiting.append(line)
            self._bytes += line.size
            while len(self._waiting) > MAX_LINES or (self._bytes > MAX_BYTES and len(self._waiting) > 1):
                self._bytes -= self._waiting.popleft().size
                self.counts["dropped"] += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="otlp-logs", daemon=True)
                self._thread.start()
            self._bell.notify_all()

    def close(self, timeout: float = FLUSH) -> None:
        """Send what waits, for at most `timeout` seconds, and end. The end of the process calls it, too. Safe to repeat."""
        with self._bell:
            self._end = min(self._end, self._steady() + timeout)
            self._bell.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
        _handlers.discard(self)
        super().close()

    # -- its own thread

    def _serve(self) -> None:
        while batch := self._next_batch():
            self._deliver(batch)

    def _next_batch(self) -> list[LogLine]:
        """Wait for lines and return some of the oldest; an empty list once the handler is closed and nothing waits."""
        with self._bell:
            while not self._waiting and self._end == math.inf:
                self._bell.wait()
            linger = self._steady() + self._linger
            while len(self._waiting) < BATCH_LINES and self._bytes < BATCH_BYTES and self._end == math.inf:
                if (left := linger - self._steady()) <= 0:
                    break
                self._bell.wait(left)
            batch: list[LogLine] = []
            size = 0
            while self._waiting and len(batch) < BATCH_LINES and (not batch or size + self._waiting[0].size <= BATCH_BYTES):
                batch.append(self._waiting.popleft())
                size += batch[-1].size
            self._bytes -= size
            return batch

    def _deliver(self, batch: list[LogLine]) -> None:
        """Send a batch until the collector has answered it for good, or the time for the end is over."""
        body, failures = body_of(batch, self._resource), 0
        while (left := self._end - self._steady()) > 0:
            timeout = min(REQUEST, left)
            answer = self._ask("POST", self._url, headers=self._headers, body=body, timeout=timeout, largest=ANSWER, tls=self._tls)
            verdict = judge(answer, len(batch))
            if verdict.outcome != "later":
                self.counts["sent"] += len(batch) - verdict.refused
                self.counts["refused"] += verdict.refused
                self._report(verdict)
                return
            failures += 1
            self._report(verdict)
            pause = backoff.exponential(self._first_pause, failures - 1, LONGEST_PAUSE) * (0.5 + 0.5 * self._chance())
            self._pause(max(verdict.pause, pause))
        self.counts["dropped"] += len(batch)

    def _pause(self, seconds: float) -> None:
        """Wait; not beyond the time for the end. When the handler is closed meanwhile, try once more at once."""
        until, closing = self._steady() + seconds, self._end < math.inf
        with self._bell:
            while (left := min(until, self._end) - self._steady()) > 0 and (closing or self._end == math.inf):
                self._bell.wait(left)

    def _report(self, verdict: Verdict) -> None:
        """Log the first failure and the first success after it. These lines go through all outputs, this one included."""
        failed = verdict.outcome != "sent"
        # At the end, the thread that waits for this one holds the handler's lock.
        if failed == self._away or self._end < math.inf:
            return
        self._away = failed
        if failed:
            text = "Log lines cannot be sent to the collector: %s"
            log.warning(text, verdict.reason, extra={"action": "logs_unsent", "output": "otlp"})
        else:
            lost = self.counts["dropped"] + self.counts["refused"]
            text = "Log lines are sent to the collector again; %d were lost"
            log.info(text, lost, extra={"action": "logs_resumed", "output": "otlp", "lost": lost})


_handlers: weakref.WeakSet[OtlpHandler] = weakref.WeakSet()


def _forked() -> None:
    for handler in list(_handlers):
        handler._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
