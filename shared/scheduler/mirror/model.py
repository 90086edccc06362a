"""What the API says of storage accounts."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from ...web.fields.types import Strict


class AccountOut(BaseModel):
    """One storage account. place: what the names of its shards begin with."""

    place: str
    role: Literal["home", "further", "second"]
    reachable: bool


class FailbackOut(BaseModel):
    """The last pass of the way back to the first account."""

    phase: Literal["copying", "syncing"]
    shards: int
    copied: int
    failed: int
    at: str


class MirrorOut(BaseModel):
    """The mirrored pair; null is what cannot be asked now."""

    active: Literal["first", "second"] | None
    state: Literal["serving", "waiting", "copying", "syncing", "filling", "unknown"]
    epoch: int | None
    serves_in_s: float | None = Field(None, description="Seconds until the account that takes over serves mirrored events.")
    lag_ms: int | None = Field(None, description="How far the copy of the unfinished shards is behind, at most.")
    behind: int | None = Field(None, description="In how many of them it is behind.")
    failback: FailbackOut | None = None


class StorageOut(BaseModel):
    """Storage as the app sees it."""

    accounts: list[AccountOut]
    mirror: MirrorOut | None


class FailoverIn(Strict):
    """Which account is to take over."""

    to: Literal["second"] = "second"
    incomplete: bool = Field(False, description="Also when it is a new account that does not have a copy of everything yet.")


class FailbackIn(Strict):
    """Nothing: an empty object."""
