"""Routes of storage accounts: their state, failover and failback."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from ...web.fields.types import Strict
from ...web.routes import Answer, Call, RouteGroup
from ..mirror.failover import Failover


class AccountOut(BaseModel):
    """One storage account. place: first letter of the names of its shards. listeners: the functions that poll its queues. If its endpoint
    refuses connections, the host ends each process that runs one of them, until the function is disabled."""

    place: str
    role: Literal["home", "further", "second"]
    reachable: bool
    listeners: list[str] = []


class FailbackOut(BaseModel):
    """The last pass of the failback to the first account."""

    phase: Literal["copying", "syncing"]
    shards: int
    copied: int
    failed: int
    at: str


class MirrorOut(BaseModel):
    """The mirrored pair. Values that are unavailable now are null."""

    active: Literal["first", "second"] | None
    state: Literal["serving", "waiting", "copying", "syncing", "filling", "unknown"]
    epoch: int | None
    serves_in_s: float | None = Field(None, description="Seconds until the account that takes over serves mirrored events.")
    lag_ms: int | None = Field(None, description="Largest delay of the copy of an unfinished shard.")
    behind: int | None = Field(None, description="Number of unfinished shards with a delayed copy.")
    failback: FailbackOut | None = None


class StorageOut(BaseModel):
    """The storage accounts that the app uses."""

    accounts: list[AccountOut]
    mirror: MirrorOut | None
    queues: str = Field(description="Address of the home account's queues, such as `https://NAME.queue.core.windows.net`.")


class FailoverIn(Strict):
    """The account that is to take over."""

    to: Literal["second"] = "second"
    incomplete: bool = Field(False, description="Take over even if the account is new and does not have a copy of everything yet.")


class FailbackIn(Strict):
    """The body of a failback: an empty object."""


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
