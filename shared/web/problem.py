"""Problems as answers: RFC 9457 documents for every failure a caller can meet.

`errors[].pointer` says where the fault is: a JSON Pointer into the body (`/payload/x`, empty for the whole body), `?limit` for a
query parameter, `{id}` for a part of the path, `@if-match` for a header.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable
from typing import Any

from ..core.errors import OutcomeUnknown, Problem, StorageError, Unavailable, UnsafeSettings

CONTENT_TYPE = "application/problem+json"

_log = logging.getLogger(__name__)


def invalid(pointer: str, detail: str, *more: tuple[str, str]) -> Problem:
    """422 for content that is well-formed but wrong, with one or more pointers."""
    return invalid_all([(pointer, detail), *more])


def invalid_all(errors: Iterable[tuple[str, str]]) -> Problem:
    """422 with a pointer for each of `errors`."""
    found = [{"pointer": pointer, "detail": detail} for pointer, detail in errors]
    where = found[0]["pointer"] or "the body"
    return Problem(
        422,
        "invalid-content",
        f"{where}: {found[0]['detail']}" if len(found) == 1 else f"{len(found)} things are wrong",
        errors=found,
    )


def unreadable(code: str, detail: str) -> Problem:
    """422 for a body in which nothing can be pointed at: the pointer is the whole of it."""
    return Problem(422, code, detail, errors=[{"pointer": "", "detail": detail}])


def not_found(what: str) -> Problem:
    """404 for what does not exist or is not the caller's: the two look alike on purpose."""
    return Problem(404, "not-found", f"there is no such {what}")


def conflict(code: str, detail: str) -> Problem:
    """409."""
    return Problem(409, code, detail)


def too_many(retry_after: float, detail: str = "over the tenant's limit") -> Problem:
    """429 with `Retry-After`, in whole seconds, at least one."""
    return Problem(429, "too-many-requests", detail, headers={"retry-after": str(max(1, -int(-retry_after // 1)))})


def of(failure: Exception, *, where: str) -> Problem:
    """The problem that tells of `failure`; what nobody expected is logged under an incident id and told as that id only.

    `where` names the operation in the log.
    """
    if isinstance(failure, Problem):
        return failure
    if isinstance(failure, Unavailable | OutcomeUnknown):
        known = isinstance(failure, Unavailable)
        _log.warning(
            "storage did not answer a call",
            extra={"action": "web.storage-unavailable", "operation": where, "failure": type(failure).__name__},
        )
        who = failure.account or "storage"
        detail = f"{who} did not take the request; nothing was changed" if known else f"{who} did not confirm the request; try it again"
        return Problem(503, "storage-unavailable", detail, headers={"retry-after": "1"})
    incident = secrets.token_hex(8)
    if isinstance(failure, UnsafeSettings):
        # Its message never holds a value; but what is set, and how, is no stranger's business.
        extra = {"action": "web.start-refused", "operation": where, "incident": incident}
        _log.error("the app does not start with these settings: %s (incident %s)", failure, incident, extra=extra)
        detail = f"the service does not start with its settings; its log tells why under incident {incident}"
        return Problem(503, "start-refused", detail, title="Start refused", headers={"retry-after": "30"})
    action = "web.storage-rejected" if isinstance(failure, StorageError) else "web.internal-error"
    _log.error(
        "a call failed in a way nobody expected (incident %s)",
        incident,
        exc_info=failure,
        extra={"action": action, "operation": where, "incident": incident},
    )
    return Problem(500, "internal-error", f"something went wrong on our side; quote incident {incident}", title="Internal error")


def document(problem: Problem, instance: str, extra: dict[str, Any] | None = None) -> dict[str, Any]:
    """The body of `problem` as told about the path `instance`, with extension members."""
    return {**problem.body(instance), **(extra or {})}
