"""Routes of storage accounts: their state, failover and failback."""

from __future__ import annotations

from ...web.routes import Answer, Call, RouteGroup
from ..mirror.failover import Failover
from ..mirror.model import FailbackIn, FailoverIn, StorageOut

storage = RouteGroup[Failover]("operations", scope="admin")


async def _state(status: int, failover: Failover) -> Answer:
    body = {"accounts": await failover.probe(), "mirror": await failover.state(), "queues": failover.queues}
    return Answer(status, body, {"cache-control": "no-store"})


@storage.get("v1/storage", answers={200: StorageOut})
async def storage_get(call: Call[Failover]) -> Answer:
    """Return the storage accounts, and which account of a mirrored pair serves."""
    return await _state(200, call.service)


@storage.post(
    "v1/storage/failover",
    answers={202: StorageOut, 409: ("not-mirrored", "not-in-step", "changed-meanwhile")},
    examples={"a complete copy": {"to": "second"}, "what there is": {"to": "second", "incomplete": True}},
    record="after",
)
async def storage_failover(call: Call[Failover, FailoverIn]) -> Answer:
    """Let the second account of the mirrored pair take over.

    The second account serves mirrored events after `serves_in_s` seconds. Repeating the call changes nothing.
    """
    await call.service.fail_over(incomplete=call.body.incomplete)
    return await _state(202, call.service)


_FAILBACK_CONFLICTS = ("not-mirrored", "taking-over", "first-not-recognised", "changed-meanwhile")


@storage.post("v1/storage/failback", answers={202: StorageOut, 409: _FAILBACK_CONFLICTS}, examples={"always": {}}, record="after")
async def storage_failback(call: Call[Failover, FailbackIn]) -> Answer:
    """Bring the first account up to date and let it serve again."""
    await call.service.fail_back()
    return await _state(202, call.service)
