"""Errors that calls of the client raise.

    TocsinError
    +-- Refused               the service refused: status, code, detail, errors (RFC 9457)
    |   +-- Unauthenticated   401  no key, or a key that is not valid
    |   +-- Forbidden         403  the key lacks the scope, or belongs to another tenant
    |   +-- NotFound          404  it does not exist, or belongs to another tenant
    |   +-- Conflict          409  `code` gives the reason: id-conflict, already-firing, already-final, not-dead, ...
    |   +-- Changed           412  If-Match names an older version
    |   +-- Invalid           411, 413, 415, 422  `errors` gives the fields
    |   +-- TooMany           429  over a limit of the tenant
    |   +-- ServerFailed      5xx
    +-- Unreachable           no answer: `sent` is True if the service may have handled the request
    +-- Unreadable            an answer that does not come from this service
    +-- LockHeld              another caller holds the lock, or waits before you, and the time to wait is over
    +-- LockLost              the grant of a lock has ended: stop what it protects
    +-- BatchStopped          a batch ended early: the finished events, and those in doubt
    +-- BadDelivery           `verify`: the request cannot be trusted

They are raised after the retries that are safe (see `exchange`). None of them holds the key or a secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..core.errors import TocsinError

if TYPE_CHECKING:
    from .model import BatchLine


class Fault(NamedTuple):
    """A fault of a request. `pointer` is a JSON Pointer into the body, or `?name` for a query parameter."""

    pointer: str
    detail: str


class Refused(TocsinError):
    """The service answered with a problem. Nothing was changed, unless `uncertain`."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        call: str = "",
        type: str = "",
        title: str = "",
        errors: Sequence[Fault] = (),
        retry_after: float | None = None,
    ) -> None:
        message = f"{status} {code}: {detail}" if code else f"{status}: {detail}"
        super().__init__(f"{message} ({call})" if call else message)
        self.status, self.code, self.detail = status, code, detail
        self.call = call
        """The refused call, such as `GET events/order-17`."""
        self.type, self.title, self.errors = type, title, tuple(errors)
        self.retry_after = retry_after
        """Seconds to wait before the next try, or None if the service gave none."""
        self.uncertain = status >= 500
        """True if the service may have made the change: after a 5xx that does not exclude it, or after a lost answer of an earlier try."""


class Unauthenticated(Refused):
    """401."""


class Forbidden(Refused):
    """403."""


class NotFound(Refused):
    """404. With an empty `code` the route does not exist: check that the URL is the app's."""


class Conflict(Refused):
    """409; see `code`."""


class Changed(Refused):
    """412."""


class Invalid(Refused):
    """411, 413, 415 or 422; see `errors`."""


class TooMany(Refused):
    """429; see `retry_after`."""


class ServerFailed(Refused):
    """5xx."""


_KINDS: dict[int, type[Refused]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    411: Invalid,
    412: Changed,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    429: TooMany,
}


def kind_of(status: int) -> type[Refused]:
    """Return the exception class for a status."""
    return _KINDS.get(status, ServerFailed if status >= 500 else Refused)


class Unreachable(TocsinError):
    """No answer came: the name did not resolve, the connection was refused or broke, or the timeout passed."""

    def __init__(self, detail: str, *, sent: bool) -> None:
        super().__init__(detail)
        self.sent = sent
        """True if the request, or an earlier try of it, may have reached the service. False: nothing was changed."""


class Unreadable(TocsinError):
    """The answer does not fit this API: another server listens at that URL, or a proxy answered."""


class LockHeld(TocsinError):
    """Another caller holds the lock, or waits before this one, and the time to wait is over."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the lock {name} is held by another caller; wait longer, or see `tocsin locks show {name}`")
        self.name = name


class LockLost(TocsinError):
    """The grant of a lock has ended while its holder was at work: another caller may have it. token: of the grant. why: the reason."""

    def __init__(self, name: str, token: int, why: str) -> None:
        super().__init__(f"the lock {name} is lost: {why}")
        self.name, self.token, self.why = name, token, why


class BatchStopped(TocsinError):
    """A batch ended early; `__cause__` gives the reason. Events neither in `done` nor in `unknown` were not accepted."""

    def __init__(self, detail: str, done: Sequence[BatchLine], unknown: Sequence[int]) -> None:
        super().__init__(detail)
        self.done = tuple(done)
        """Results of the events that were answered, ordered by `index`."""
        self.unknown = tuple(unknown)
        """Indexes of the events that were sent but not answered. Events with ids of their own can be sent again without doubles."""


class BadDelivery(TocsinError):
    """The request must not be trusted: answer 401. The message gives the reason for your log; do not send it back."""
