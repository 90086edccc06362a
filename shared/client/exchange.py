"""One call with its retries, as a generator without I/O: it yields what to send and how long to wait, and is resumed with what came.

When a try is repeated:

| what came | repeated |
| --- | --- |
| never connected | always: nothing was sent |
| 429, and 409 or 425 with `Retry-After` | always: nothing was changed |
| 502, 503, 504, a lost answer | only if the call is `repeatable`: doing it twice is the same as doing it once |
| anything else | never |

After a lost answer a repeated call may be refused because the first try had been taken (a second cancel finds the event cancelled).
`Recovery` says how to tell.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import from_json

from .errors import Fault, Refused, Unreachable, Unreadable, kind_of
from .model import Event

_SURELY_UNCHANGED = (409, 425, 429)
_MAYBE = (502, 503, 504)


class Reply(NamedTuple):
    """An answer. Names of `headers` in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Failure(NamedTuple):
    """No answer. `sent`: whether the request may have reached the service. `why` is for people."""

    sent: bool
    why: str
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Recovery[T]:
    """How to tell, after a lost answer, that a refusal means success: the event is read, and stands in one of `states`."""

    codes: frozenset[str]
    look: Call[Event]
    states: frozenset[str]
    result: Callable[[Event], T]


@dataclass(frozen=True, slots=True)
class Call[T]:
    """A request, and how to read its answer. `path` comes after `/api/v1/`."""

    method: str
    path: str
    read: Callable[[Reply], T]
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    media: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True
    recovery: Recovery[T] | None = None
    slow: bool = False
    """The answer may take minutes."""


class Send(NamedTuple):
    """Send this: resumed with `Reply | Failure`."""

    call: Call[Any]


class Sleep(NamedTuple):
    """Wait so many seconds: resumed with None."""

    seconds: float


type Steps[T] = Generator[Send | Sleep, Any, T]


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a call is tried again, and how long it waits in between."""

    retries: int = 4
    first: float = 0.2
    """Seconds: longest pause before the second try; doubles from there (full jitter)."""
    longest: float = 5.0
    most: float = 30.0
    """A `Retry-After` of more seconds than this is not waited for."""

    def pause(self, tries: int, retry_after: float | None, chance: float) -> float | None:
        """Seconds to wait after so many tries; None: give up. `Retry-After` is a lower bound; jitter spreads those who wait."""
        if tries > self.retries or (retry_after is not None and retry_after > self.most):
            return None
        return (retry_after or 0.0) + min(self.longest, self.first * 2.0 ** (tries - 1)) * chance


def exchange[T](call: Call[T], patience: Patience, chance: Callable[[], float]) -> Steps[T]:
    """Carry `call` out. Raises `Refused`, `Unreachable`, `Unreadable`."""
    doubt = False
    for tries in itertools.count(1):
        came: Reply | Failure = yield Send(call)
        if isinstance(came, Failure):
            doubt = doubt or came.sent
            pause = patience.pause(tries, None, chance()) if call.repeatable or not came.sent else None
            if pause is None:
                raise Unreachable(came.why, sent=doubt) from came.error
        elif 200 <= came.status < 300:
            return call.read(came)
        else:
            refused = refusal(came, f"{call.method} {call.path}")
            refused.uncertain = refused.uncertain or doubt
            if doubt and (recovery := call.recovery) is not None and refused.code in recovery.codes:
                event = yield from exchange(recovery.look, patience, chance)
                if event.state in recovery.states:
                    return recovery.result(event)
                raise refused
            if not _again(refused, call.repeatable):
                raise refused
            pause = patience.pause(tries, refused.retry_after, chance())
            if pause is None:
                raise refused
            doubt = doubt or refused.status >= 500
        yield Sleep(pause)
    raise AssertionError("unreachable")


def _again(refused: Refused, repeatable: bool) -> bool:
    if refused.status in _SURELY_UNCHANGED:
        return refused.status == 429 or refused.retry_after is not None
    return repeatable and refused.status in _MAYBE


def refusal(reply: Reply, what: str) -> Refused:
    """The exception for an answer that is no success. `what` was asked for: it goes into the message, so that it names the id."""
    status, body, after = reply.status, _json(reply.body), _seconds(reply.headers.get("retry-after"))
    if not isinstance(body, dict) or "detail" not in body:
        why = "no such route; is the URL the app's?" if status == 404 and not reply.body else "an answer without a problem document"
        return kind_of(status)(status, "", why, call=what, retry_after=after)
    kind = str(body.get("type", ""))
    return kind_of(status)(
        status,
        kind.rpartition("/")[2],
        str(body["detail"]),
        call=what,
        type=kind,
        title=str(body.get("title", "")),
        errors=_faults(body.get("errors")),
        retry_after=after,
    )


def _faults(found: Any) -> list[Fault]:
    if not isinstance(found, list):
        return []
    return [Fault(str(each.get("pointer", "")), str(each.get("detail", ""))) for each in found if isinstance(each, dict)]


def _json(body: bytes) -> Any:
    try:
        return from_json(body)
    except ValueError:
        return None


def _seconds(header: str | None) -> float | None:
    return float(header) if header is not None and header.isascii() and header.isdigit() and len(header) < 10 else None


def reading[T](shape: Callable[[Any], T], *, tagged: bool = False) -> Callable[[Reply], T]:
    """Reads an answer's JSON as `shape` has it; with `tagged` the ETag goes in as the member `etag`. Raises `Unreadable`."""

    def read(reply: Reply) -> T:
        try:
            document = from_json(reply.body)
            if tagged:
                document["etag"] = reply.headers.get("etag")
            return shape(document)
        except (ValueError, TypeError, LookupError, AttributeError) as wrong:
            # pydantic's own words would repeat what came, and that may be anything.
            names = sorted({str(error["loc"][0]) for error in wrong.errors() if error["loc"]}) if isinstance(wrong, ValidationError) else []
            where = f": {', '.join(names)}" if names else ""
            raise Unreadable(f"{reply.status}, but the answer is not what this API gives{where}") from None

    return read


def nothing(reply: Reply) -> None:
    """Reads an answer that says nothing. Raises `Unreadable` where it does: what answers everything with a page has done nothing."""
    if reply.body:
        raise Unreadable(f"{reply.status}, but the answer is not what this API gives")
