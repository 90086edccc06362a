"""Problem documents (RFC 9457) for every failure that a caller can meet.

`errors[].pointer` locates the fault: a JSON Pointer into the body (`/payload/x`, empty for the whole body), `?limit` for a query parameter,
`{id}` for a part of the path, `@if-match` for a header. `errors[].detail` continues the pointer as a sentence: "/count must be at most 10".
A message never repeats values of the body, because they may be secrets.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable
from typing import Any

from ..core.errors import Outcome, OutcomeUnknown, Problem, StorageError, Unavailable, UnsafeSettings

CONTENT_TYPE = "application/problem+json"

_log = logging.getLogger(__name__)


def invalid(pointer: str, detail: str, *more: tuple[str, str]) -> Problem:
    """Return 422 for content that is well-formed but not valid, with one or more pointers."""
    return invalid_all([(pointer, detail), *more])


def invalid_all(errors: Iterable[tuple[str, str]]) -> Problem:
    """Return 422 with a pointer for each of `errors`."""
    found = [{"pointer": pointer, "detail": detail} for pointer, detail in errors]
    where = found[0]["pointer"] or "the body"
    return Problem(
        422,
        "invalid-content",
        f"{where}: {found[0]['detail']}" if len(found) == 1 else f"{len(found)} fields are not valid; see `errors`",
        errors=found,
    )


def unreadable(code: str, detail: str) -> Problem:
    """Return 422 for a body that cannot be parsed; its pointer names the whole body."""
    return Problem(422, code, detail, errors=[{"pointer": "", "detail": detail}])


def not_found(what: str) -> Problem:
    """Return 404 for a resource that does not exist or belongs to another tenant: callers cannot distinguish the two, on purpose."""
    return Problem(404, "not-found", f"There is no such {what}.")


def conflict(code: str, detail: str, limit: str = "") -> Problem:
    """Return 409. limit: see `Problem`."""
    return Problem(409, code, detail, limit=limit)


def too_many(
    retry_after: float,
    detail: str = "The tenant's limit is reached. Repeat the call after the time in Retry-After.",
    limit: str = "",
) -> Problem:
    """Return 429 with `Retry-After`, in whole seconds, at least one. limit: see `Problem`."""
    return Problem(429, "too-many-requests", detail, headers={"retry-after": str(max(1, -int(-retry_after // 1)))}, limit=limit)


def of(failure: Exception, *, where: str) -> Problem:
    """Return the problem for `failure`. An unexpected failure is logged under an incident id, and the caller gets only that id.

    where: the operation's name in the log.
    """
    if isinstance(failure, Problem):
        return failure
    if isinstance(failure, Unavailable | OutcomeUnknown):
        known = isinstance(failure, Unavailable)
        _log.warning(
            "Storage did not answer a call",
            extra={"action": "web.storage-unavailable", "operation": where, "failure": type(failure).__name__},
        )
        who = failure.account or "storage"
        who = who[0].upper() + who[1:]
        if known:
            detail = f"{who} did not accept the request; nothing was changed. Repeat the call."
        else:
            detail = f"{who} did not confirm the request, which may have been applied. Repeat the call."
        outcome: Outcome = "unchanged" if known else "unknown"
        return Problem(503, "storage-unavailable", detail, headers={"retry-after": "1"}, outcome=outcome)
    incident = secrets.token_hex(8)
    if isinstance(failure, UnsafeSettings):
        # The message holds no value, but strangers must not learn which settings exist.
        extra = {"action": "web.start-refused", "operation": where, "incident": incident}
        _log.error("The app does not start with these settings: %s (incident %s)", failure, incident, extra=extra)
        detail = f"The service does not start with its settings. Its log gives the reason under incident {incident}."
        return Problem(503, "start-refused", detail, title="Start refused", headers={"retry-after": "30"})
    action = "web.storage-rejected" if isinstance(failure, StorageError) else "web.internal-error"
    _log.error(
        "A call failed unexpectedly (incident %s)",
        incident,
        exc_info=failure,
        extra={"action": action, "operation": where, "incident": incident},
    )
    detail = f"The service failed unexpectedly. Tell its operator: incident {incident}; the app's log has it."
    return Problem(500, "internal-error", detail, title="Internal error")


def release(failure: BaseException | None) -> None:
    """Remove the tracebacks of an expected failure and of its causes, so that the call's body is freed at once.

    A frame of a traceback refers to the failure, and one of them to the body. Such a cycle stays in memory until the garbage collector
    runs, or forever if a failure of pydantic belongs to it. Unexpected failures keep their tracebacks, which the log may still show.
    """
    expected = isinstance(failure, Problem | Unavailable | OutcomeUnknown)
    while expected and failure is not None:
        cause = failure.__cause__ or failure.__context__
        failure.__traceback__ = failure.__cause__ = failure.__context__ = None
        failure = cause


def late(seconds: float, *, unknown: bool, where: str) -> Problem:
    """Return the 503 of a call that was not finished within `seconds`, and log it.

    unknown: the call may have changed something, or may still do so. where: the operation's name in the log.
    """
    extra = {"action": "web.storage-unavailable", "operation": where, "failure": "TimeLimit"}
    _log.warning("A call was not finished in time", extra=extra)
    if unknown:
        detail = f"Storage is slow or silent: the call was not finished within {seconds:g} s. It may have been applied, or may still be."
        return Problem(503, "storage-unavailable", f"{detail} Repeat the call.", headers={"retry-after": "1"}, outcome="unknown")
    detail = f"Storage is slow or silent: the call was not finished within {seconds:g} s. Nothing was changed. Repeat the call."
    return Problem(503, "storage-unavailable", detail, headers={"retry-after": "1"}, outcome="unchanged")


def document(problem: Problem, instance: str, extra: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the problem document (RFC 9457) of `problem`. instance: the request's path. extra: extension members."""
    return {**problem.body(instance), **(extra or {})}
