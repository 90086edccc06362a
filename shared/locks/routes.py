"""Routes of locks."""

from __future__ import annotations

from ..web.fields.params import Paging
from ..web.paging import after, page
from ..web.routes import Answer, Call, RouteGroup
from .model import (
    LockHeldOut,
    LockIn,
    LockList,
    LockName,
    LockOut,
    LockReleaseQuery,
    LockRevokedOut,
    LockRevokeIn,
    LockWaitingOut,
)
from .service import LockService

locks = RouteGroup[LockService]("locks", scope=("events", "fleets"), params={"lock": LockName})

_EXAMPLES = {
    "acquire": {"holder": "web-1/4711", "nonce": "k3v9x0", "ttl": "PT30S", "wait": "PT10S"},
    "renew": {"holder": "web-1/4711", "nonce": "k3v9x0", "token": 1795256515250, "version": "WzMwMDAwLCJ4Il0"},
}


@locks.put(
    "v1/locks/{lock}",
    answers={200: LockHeldOut, 202: LockWaitingOut, 409: ("lock-held", "lock-lost", "too-many-waiters"), 429: "too-many-requests"},
    examples=_EXAMPLES,
    continues=lambda call: call.body.token is not None,
)
async def locks_put(call: Call[LockService, LockIn]) -> Answer:
    """Acquire a lock, or renew a grant.

    200: the caller holds the lock until valid_ms after it SENT this request, by its own clock. 202: it waits, and must ask again. 409
    lock-held: another caller holds it, and this one does not wait. 409 lock-lost: this grant has ended. The call is safe to repeat.
    """
    answer = await call.service.ask(call.tenant, call.params["lock"], call.body)
    return Answer(200 if isinstance(answer, LockHeldOut) else 202, answer)


@locks.delete("v1/locks/{lock}", answers={204: None, 409: ("lock-held",)}, if_match=True)
async def locks_delete(call: Call[LockService, None, LockReleaseQuery]) -> Answer:
    """Release a lock, and leave its queue.

    The first waiter gets it when it asks next. The attempt of this holder and nonce has ended then, and a request of it that arrives later
    gets nothing. A token without holder that does not hold the lock is 409 `lock-held`. The call is safe to repeat. The lock's row stays
    for at least a day, so that later tokens are greater.
    """
    await call.service.release(call.tenant, call.params["lock"], call.query, call.headers)
    return Answer(204)


@locks.post("v1/locks/{lock}/revoke", scope="fleets", answers={202: LockRevokedOut}, examples={"one": {"note": "it blocks the release"}})
async def locks_revoke(call: Call[LockService, LockRevokeIn]) -> Answer:
    """Let the grant of a lock run out.

    The grant cannot be renewed any more. Its holder may rely on it until its validity ends, and nobody gets the lock before that. The call
    is safe to repeat.
    """
    waits = await call.service.revoke(call.tenant, call.params["lock"], call.body.note, call.key.prefix)
    return Answer(202, LockRevokedOut(free_after_ms=waits))


@locks.get("v1/locks/{lock}", answers={200: LockOut}, tagged=True)
async def locks_get(call: Call[LockService]) -> Answer:
    """Return a lock with its waiters."""
    out, etag = await call.service.get(call.tenant, call.params["lock"])
    return Answer(200, out, etag=etag)


@locks.get("v1/locks", answers={200: LockList})
async def locks_list(call: Call[LockService, None, Paging]) -> Answer:
    """List locks by name."""
    return page("locks", *await call.service.page(call.tenant, call.query.limit, after(call, "locks", str, "")))
