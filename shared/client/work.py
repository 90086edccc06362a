"""Long work in a receiver: accept an event with 202, and complete or fail it later with the token of its attempt. No key is needed."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Self

import httpx

from ..core.clock import to_datetime
from ..core.durations import format_duration, parse_time
from ..core.long_work import HEADER_ANSWER, LATER, TOKEN
from . import http
from .exchange import ApiCall, CallSteps, RetrySettings, exchange, json_reader
from .sending import blocking, concurrent

PATH = "/api/v1/work/"
MAX_ERROR = 400
"""Characters of an error that are sent."""


class WorkState(NamedTuple):
    """The state of the work after a call."""

    state: str
    """working, completed or failed."""
    event: str
    """State of the event: working, delivered, retrying, dead, lapsed, or `ended` if it went on since."""
    deadline: datetime | None = None
    """While working: silence until then is a failed attempt."""
    latest: datetime | None = None
    """While working: heartbeats extend the deadline up to this time."""
    next_attempt: datetime | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one attempt. Each call may be repeated, and raises the errors of `tocsin.client.errors`.

    `Conflict` with the code `work-over`: the event went on without this attempt, or was cancelled: stop the work.
    """

    url: str
    """The attempt's completion URL. It holds no secret."""
    token: str = field(repr=False)
    """The attempt's token: keep it out of logs."""
    within: timedelta = timedelta(0)
    """Silence for this long, from the answer and from each heartbeat, is a failed attempt."""

    def later(self) -> dict[str, str]:
        """Return the headers of the answer 202 that accepts the event."""
        return {HEADER_ANSWER: LATER}

    def at(self, app: str) -> Self:
        """Return the work at this address of the app, such as https://app.example, whatever address the delivery named."""
        return replace(self, url=f"{app.rstrip('/')}{PATH}{self.url.partition(PATH)[2]}")

    def save(self) -> str:
        """Return the work as a text, for another process. It holds the token."""
        return json.dumps({"url": self.url, "token": self.token, "within": self.within.total_seconds()})

    @classmethod
    def load(cls, text: str) -> Self:
        """Return the work of a text that `save` has made. Raises ValueError for another text."""
        try:
            found = json.loads(text)
            return cls(str(found["url"]), str(found["token"]), timedelta(seconds=found["within"]))
        except (LookupError, TypeError):
            raise ValueError("not the text of a work: use the text that Work.save returned") from None

    def heartbeat(self, **options: Any) -> WorkState:
        """Let the time begin again. options: see `WorkCaller`."""
        return WorkCaller(self, **options).call("heartbeat")

    def complete(self, **options: Any) -> WorkState:
        """Complete the event: it is delivered."""
        return WorkCaller(self, **options).call("complete")

    def fail(self, error: str = "", *, retry: bool = True, retry_after: timedelta | None = None, **options: Any) -> WorkState:
        """End the attempt as failed: the event is retried by its policy, after `retry_after` at the earliest; or dead without `retry`.

        error: shown with the attempt, the first 400 characters on one line.
        """
        return WorkCaller(self, **options).call("fail", _failure(error, retry, retry_after))

    async def heartbeat_async(self, **options: Any) -> WorkState:
        """See `heartbeat`."""
        return await WorkCaller(self, **options).call_async("heartbeat")

    async def complete_async(self, **options: Any) -> WorkState:
        """See `complete`."""
        return await WorkCaller(self, **options).call_async("complete")

    async def fail_async(self, error: str = "", *, retry: bool = True, retry_after: timedelta | None = None, **options: Any) -> WorkState:
        """See `fail`."""
        return await WorkCaller(self, **options).call_async("fail", _failure(error, retry, retry_after))


class WorkCaller:
    """Makes the calls of one work, with retries."""

    def __init__(
        self,
        work: Work,
        *,
        timeout: float = 30.0,
        retries: int = 6,
        transport: Any = None,
        allow_plain_http: bool | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """timeout: longest time without a byte, in seconds. retries: largest number of retries of a call. transport: of httpx.
        allow_plain_http: as for `Client`. Raises ValueError for a URL or a token that cannot be used.
        """
        app, found, rest = work.url.partition(PATH)
        if not found or not app:
            raise ValueError("the completion URL names no app; set TOCSIN_PUBLIC_URL on the app, or use work.at('https://app.example')")
        if not TOKEN.fullmatch(work.token):
            raise ValueError("not the token of an attempt; it is in the delivery's header tocsin-completion-token")
        self._path = f"work/{rest}"
        self._options = http.client_options(app, work.token, timeout, transport=transport, allow_plain_http=allow_plain_http)
        self._transport, self._retry_settings, self._sleep = transport, RetrySettings(retries), sleep

    def call(self, verb: str, body: bytes = b"") -> WorkState:
        """Make a call and return the state after it."""
        with httpx.Client(**self._options, transport=self._transport) as client:
            return blocking.run(self._steps(verb, body), client, None, self._sleep)

    async def call_async(self, verb: str, body: bytes = b"") -> WorkState:
        """Make a call and return the state after it."""
        async with httpx.AsyncClient(**self._options, transport=self._transport) as client:
            return await concurrent.run(self._steps(verb, body), client, None, asyncio.sleep)

    def _steps(self, verb: str, body: bytes) -> CallSteps[WorkState]:
        # A repetition of each of these calls has the effect of one.
        return exchange(ApiCall("POST", f"{self._path}/{verb}", json_reader(_state), body=body), self._retry_settings, random.random)


def _state(document: Any) -> WorkState:
    names = ("deadline", "latest", "next_attempt")
    deadline, latest, following = (to_datetime(parse_time(document[name])) if name in document else None for name in names)
    return WorkState(str(document["state"]), str(document["event"]), deadline, latest, following)


def _failure(error: str, retry: bool, retry_after: timedelta | None) -> bytes:
    said: dict[str, Any] = {"retry": retry}
    if text := " ".join("".join(char if char.isprintable() else " " for char in error).split())[:MAX_ERROR]:
        said["error"] = text
    if retry_after is not None:
        said["retry_after"] = format_duration(round(retry_after.total_seconds() * 1000))
    return json.dumps(said).encode()
