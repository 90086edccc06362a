"""One call with its retries, as a generator without I/O. It yields requests to send and pauses to make, and receives the answers.

A try is repeated after:

| result | repeated |
| --- | --- |
| no connection | always: nothing was sent |
| 429, and 409 or 425 with `Retry-After` | always: nothing was changed |
| 502, 503, 504, a lost answer | only if the call is `repeatable`: two requests have the effect of one |
| anything else | never |

After a lost answer, the service may refuse the repeated call because it had accepted the first try (a second cancel finds the event
cancelled). `Recovery` recognises that.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..core import backoff
from .errors import Fault, Refused, Unreachable, Unreadable, kind_of
from .model import Event
from .reading import Misfit, read_json

_SURELY_UNCHANGED = (409, 425, 429)
_MAYBE = (502, 503, 504)
_NO_PROBLEM = "the answer holds no problem document"
_EMPTY = {
    404: "this route does not exist; is the URL the app's?",
    500: "the host answered without a reason; it does so to a body that is larger than GET /limits allows",
}
"""Meanings of answers without a body: they come from the Functions host."""


class ApiReply(NamedTuple):
    """An answer of the API. The names in `headers` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ConnectionFailure(NamedTuple):
    """A request without an answer. `sent`: True if it may have reached the service. `why`: the reason, for people. `lasting`: True if time
    does not mend it: the name does not resolve, or TLS fails."""

    sent: bool
    why: str
    error: BaseException | None = None
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class Recovery[T]:
    """Recognises a refusal that means success after a lost answer: its code is in `codes`, and the event is in one of `states`."""

    codes: frozenset[str]
    look: ApiCall[Event]
    states: frozenset[str]
    result: Callable[[Event], T]


@dataclass(frozen=True, slots=True)
class ApiCall[T]:
    """A request, and the function that reads its answer. `path` is relative to `/api/v1/`."""

    method: str
    path: str
    read: Callable[[ApiReply], T]
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    media: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True
    recovery: Recovery[T] | None = None
    slow: bool = False
    """True if the answer may take minutes."""
    timeout: float | None = None
    """Longest time without a byte, in seconds, instead of the client's."""


class SendCall(NamedTuple):
    """Send this: resumed with `Reply | Failure`."""

    call: ApiCall[Any]


class Sleep(NamedTuple):
    """Asks the client to wait for `seconds`. The generator receives None."""

    seconds: float


type CallSteps[T] = Generator[SendCall | Sleep, Any, T]


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """Number of retries of a call, and the pauses between them."""

    retries: int = 4
    first: float = 0.2
    """Longest pause before the second try, in seconds. It doubles with each try (full jitter)."""
    longest: float = 5.0
    """Longest pause, in seconds, without `Retry-After`."""
    most: float = 30.0
    """Longest `Retry-After`, in seconds, that is waited for. A longer one ends the call."""

    def pause(self, tries: int, retry_after: float | None, chance: float) -> float | None:
        """Return the seconds to wait after `tries` tries, or None to give up.

        `Retry-After` is a lower bound. `chance`, from 0 to 1, spreads clients that wait at the same time.
        """
        if tries > self.retries or (retry_after is not None and retry_after > self.most):
            return None
        return (retry_after or 0.0) + backoff.exponential(self.first, tries - 1, self.longest) * chance


def exchange[T](call: ApiCall[T], retry_settings: RetrySettings, chance: Callable[[], float]) -> CallSteps[T]:
    """Run `call` and return its answer. Raises `Refused`, `Unreachable`, `Unreadable`."""
    doubt = False
    for tries in itertools.count(1):
        result: ApiReply | ConnectionFailure = yield SendCall(call)
        if isinstance(result, ConnectionFailure):
            doubt = doubt or result.sent
            pause = retry_settings.pause(tries, None, chance()) if call.repeatable or not result.sent else None
            if pause is None:
                raise Unreachable(result.why, sent=doubt) from result.error
        elif 200 <= result.status < 300:
            return call.read(result)
        else:
            refused = refusal(result, f"{call.method} {call.path}")
            refused.uncertain = refused.uncertain or doubt
            if doubt and (recovery := call.recovery) is not None and refused.code in recovery.codes:
                event = yield from exchange(recovery.look, retry_settings, chance)
                if event.state in recovery.states:
                    return recovery.result(event)
                raise refused
            if not _may_retry(refused, call.repeatable):
                raise refused
            pause = retry_settings.pause(tries, refused.retry_after, chance())
            if pause is None:
                raise refused
            doubt = refused.uncertain
        yield Sleep(pause)
    raise AssertionError("unreachable")


def _may_retry(refused: Refused, repeatable: bool) -> bool:
    if refused.status in _SURELY_UNCHANGED:
        return refused.status == 429 or refused.retry_after is not None
    return repeatable and refused.status in _MAYBE


def refusal(reply: ApiReply, what: str) -> Refused:
    """Return the exception for an answer that is not a success. `what` is the call, such as `GET events/x`; the message shows it."""
    status, body, after = reply.status, _json(reply.body), _seconds(reply.headers.get("retry-after"))
    if not isinstance(body, dict) or "detail" not in body:
        why = _EMPTY.get(status, _NO_PROBLEM) if not reply.body else _NO_PROBLEM
        return kind_of(status)(status, "", why, call=what, retry_after=after)
    kind = str(body.get("type", ""))
    found = kind_of(status)(
        status,
        kind.rpartition("/")[2],
        str(body["detail"]),
        call=what,
        type=kind,
        title=str(body.get("title", "")),
        errors=_faults(body.get("errors")),
        retry_after=after,
    )
    if body.get("outcome") == "unchanged":
        found.uncertain = False
    return found


def _faults(found: Any) -> list[Fault]:
    if not isinstance(found, list):
        return []
    return [Fault(str(each.get("pointer", "")), str(each.get("detail", ""))) for each in found if isinstance(each, dict)]


def _json(body: bytes) -> Any:
    try:
        return read_json(body)
    except ValueError:
        return None


def _seconds(header: str | None) -> float | None:
    return float(header) if header is not None and header.isascii() and header.isdigit() and len(header) < 10 else None


def json_reader[T](shape: Callable[[Any], T], *, tagged: bool = False) -> Callable[[ApiReply], T]:
    """Return a function that reads an answer's JSON with `shape` and raises `Unreadable` if it does not fit.

    tagged: add the ETag header to the document as its member `etag`.
    """

    def read(reply: ApiReply) -> T:
        try:
            document = read_json(reply.body)
            if tagged:
                document["etag"] = reply.headers.get("etag")
            return shape(document)
        except (ValueError, TypeError, LookupError, AttributeError) as wrong:
            # The message names fields only: values may be secret.
            where = f": {wrong}" if isinstance(wrong, Misfit) else ""
            raise Unreadable(f"status {reply.status}, but the body does not fit this API{where}") from None

    return read


def read_empty(reply: ApiReply) -> None:
    """Accept an empty answer. Raises `Unreadable` for any other: a server that answers every request with a page has done nothing."""
    if reply.body:
        raise Unreadable(f"status {reply.status}, but the body should be empty")
