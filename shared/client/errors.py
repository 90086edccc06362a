"""What calls of the client raise.

    TocsinError
    +-- Refused               the service said no: status, code, detail, errors (RFC 9457)
    |   +-- Unauthenticated   401  without a key, or not a valid one
    |   +-- Forbidden         403  the key lacks the scope, or is another tenant's
    |   +-- NotFound          404  not there, or not yours
    |   +-- Conflict          409  `code` says which: id-conflict, already-firing, already-final, not-dead, ...
    |   +-- Changed           412  If-Match names an older version
    |   +-- Invalid           411, 413, 415, 422  `errors` says where
    |   +-- TooMany           429  over a limit of the tenant
    |   +-- ServerFailed      5xx
    +-- Unreachable           no answer: `sent` says whether the request may have been taken all the same
    +-- Unreadable            an answer, but not one of this service's
    +-- BatchStopped          a batch ended half-way: what is done, and what nobody knows
    +-- BadDelivery           `verify`: not a delivery that may be trusted

Raised after the retries that were safe (see `exchange`). None of them holds the key or a secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..core.errors import TocsinError

if TYPE_CHECKING:
    from .model import BatchLine


class Fault(NamedTuple):
    """One thing that is wrong with a request: `pointer` is a JSON Pointer into the body, `?name` a query parameter."""

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
        said = f"{status} {code}: {detail}" if code else f"{status}: {detail}"
        super().__init__(f"{said} ({call})" if call else said)
        self.status, self.code, self.detail = status, code, detail
        self.call = call
        """What was asked for: `GET events/order-17`."""
        self.type, self.title, self.errors = type, title, tuple(errors)
        self.retry_after = retry_after
        """Seconds after which to try again, if the service named any."""
        self.uncertain = status >= 500
        """True when nobody knows whether anything was changed: after a 5xx, or when the answer of an earlier try was lost."""


class Unauthenticated(Refused):
    """401."""


class Forbidden(Refused):
    """403."""


class NotFound(Refused):
    """404. With an empty `code` no such route exists: the URL may not be the app's."""


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
    """The class for a status."""
    return _KINDS.get(status, ServerFailed if status >= 500 else Refused)


class Unreachable(TocsinError):
    """No answer came: the name did not resolve, nobody listened, the connection broke, or time ran out."""

    def __init__(self, detail: str, *, sent: bool) -> None:
        super().__init__(detail)
        self.sent = sent
        """True when the request, or an earlier try of it, may have reached the service. False: certainly nothing was changed."""


class Unreadable(TocsinError):
    """The answer is not what this API gives: something else listens at that URL, or a proxy answered."""


class BatchStopped(TocsinError):
    """A batch ended half-way; `__cause__` says why. Events neither in `done` nor in `unknown` were not taken."""

    def __init__(self, detail: str, done: Sequence[BatchLine], unknown: Sequence[int]) -> None:
        super().__init__(detail)
        self.done = tuple(done)
        """What became of the events that were answered, by `index`."""
        self.unknown = tuple(unknown)
        """Indexes of the events that were sent without an answer. Sent again with ids of their own they cannot double."""


class BadDelivery(TocsinError):
    """The request must not be trusted: answer 401. The message says what is wrong, for a log; not for the sender."""
