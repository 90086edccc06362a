"""Problem documents (RFC 9457) for every failure that a caller can meet.

`errors[].pointer` locates the fault: a JSON Pointer into the body (`/payload/x`, empty for the whole body), `?limit` for a query parameter,
`{id}` for a part of the path, `@if-match` for a header. `errors[].detail` continues the pointer as a sentence: "/count must be at most 10".
A message never repeats values of the body, because they may be secrets.

The meaning of each problem type, and what to do: the codes at the end of `type` in RFC 9457 documents.

`python -m devhost.problem_page` writes docs/reference/problems.md from this table.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable
from typing import Any, Final

from ..core.errors import Outcome, OutcomeUnknown, Problem, StorageError, Unavailable, UnsafeSettings

MEANINGS: Final[dict[str, str]] = {
    "agent-live": "",
    "already-approved": "",
    "already-ended": "",
    "already-final": "The event has ended and stays as it is. Create another one with a new id.",
    "already-firing": "A delivery of the event is under way. Read the event again in a few seconds.",
    "already-started": "",
    "attempt-unsettled": "The outcome of the attempt is being stored. Repeat the call after `Retry-After`.",
    "batch-unfinished": "The batch was not finished in time, and this event was not stored. Send it again.",
    "busy": "The process works on as many request bodies as it may. Repeat the request after `Retry-After`.",
    "calendar-in-use": "",
    "call-expired": "The call was not carried out within 10 s, and does nothing any more. Repeat it.",
    "changed-meanwhile": "Other requests have changed the same resource. Read it, and repeat the change if it is still wanted.",
    "content-too-large": "The body exceeds a limit, which the detail names. Send less.",
    "empty-body": "",
    "events-left": "Events of the deleted tenant are still kept. Wait, use another name, or hand them over with `?inherit=true`.",
    "fenced": "This incarnation is over. Stop acting on all partitions, and register a new incarnation with seq 1.",
    "first-not-recognised": "The account that answers is not the first of this pair, or cannot be read. Check the settings.",
    "id-conflict": "Another event has this id, with other content. Use another id, or change that event.",
    "internal-error": "A defect. The log has the incident id of the answer; please report it.",
    "invalid-content": "A value is wrong. `errors` names each place with the reason.",
    "job-ended": "The bulk job is cancelled, or its count is over an hour old. Create another one.",
    "late": "The turn is over, so its checkpoint does not count. Take the next turn.",
    "lease-lost": "The approval was given to another node meanwhile, or its event is gone. Do nothing.",
    "length-required": "",
    "lock-held": "Another caller holds the lock, or waits for it. Ask again later, or send `wait` to join its queue.",
    "lock-lost": "This grant of the lock has ended. Stop the work that it protects, and ask for the lock with a new nonce.",
    "made-elsewhere": "The schedule was made through the other API (Tocsin's or BigBen's). Use another id, or delete it first.",
    "malformed-json": "",
    "missing-scope": "",
    "name-in-use": "Another incarnation has this name. Repeat the request with the same incarnation after `Retry-After`.",
    "newer-stored-forms": "Storage has stored forms of a newer version than the answering process. Repeat the call; deploy that version.",
    "no-destination": "The named server cannot take the partitions, for the reason in the detail. Name another one.",
    "not-confirmed": "This is not the confirmation of the job's count. Read the job again.",
    "not-dead": "Only dead events can be redriven. To repeat one that was delivered, create another with a new id.",
    "not-drained": "",
    "not-found": "Nothing of this name exists for the key's tenant.",
    "not-holder": "The turn is another node's, or was not handed out yet.",
    "not-in-step": "The second account lacks changes, which would be lost. Wait, or confirm the loss as the detail says.",
    "not-mirrored": "",
    "not-offline": "",
    "not-owned": "",
    "not-pinned": "",
    "not-prohibited": "",
    "not-signed": "",
    "not-your-node": "",
    "not-your-tenant": "",
    "offline": "Partitions are offline. Bring them online before a resize.",
    "older-version": "A process of an older version works, or did a short while ago. Wait until all have ended.",
    "payload-too-large": "The payload exceeds the limit of its tenant or channel.",
    "precondition-failed": "The resource has changed since you read it, or is there already. Read it again and repeat the change.",
    "prohibited": "A manual control prohibits this. Permit it first.",
    "resizing": "A resize to another number is in progress. Wait until it ends.",
    "rows-missing": "Rows of partitions are missing or cannot be read. Restore them with a PUT of the fleet.",
    "servers-live": "A server of the fleet still lives. Stop it, wait until it is fenced, and repeat the request.",
    "stale-epoch": "The partition has had another owner since. Stop acting on it.",
    "stale-seq": "A later heartbeat or report has been applied. Send the next one.",
    "stale-term": "A claim to be primary with a higher term is known.",
    "start-refused": "The app does not run with its settings. The log names the setting.",
    "still-queued": "The event is not stored yet. Repeat the request after `Retry-After`.",
    "storage-unavailable": "Storage did not answer. `outcome` says whether something may have changed; repeat the request.",
    "taking-over": "The failover is not complete yet. Repeat the request after the seconds in the detail.",
    "term-conflict": "",
    "too-many-calendars": "",
    "too-many-events": "",
    "too-many-fleets": "",
    "too-many-intents": "",
    "too-many-nodes": "",
    "too-many-partitions": "",
    "too-many-replicas": "",
    "too-many-requests": "A limit of the tenant, which the detail names, is reached. Repeat the request after `Retry-After`.",
    "too-many-servers": "",
    "too-many-waiters": "",
    "unauthenticated": "The key is missing, wrong, expired or revoked.",
    "unknown-replica": "The service does not know this life of the replica. Report with seq 1.",
    "unsupported-media-type": "",
    "work-over": "The attempt has ended, so it can be neither completed, failed nor extended.",
}
"""By code: one or two sentences, none if code and `detail` say it all. A test compares the codes with those of all routes."""


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
