"""Wire models of storage accounts."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from ...web.fields.types import Strict


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
