"""Request and response models of locks (docs/how-to/lock.md)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from ..web.fields.error_texts import TEXT, Shaped
from ..web.fields.params import Query, Whole
from ..web.fields.types import Duration, Maybe, Note, Stamp, Strict
from .timings import DEFAULT_TTL, LEAST_TTL, LEAST_WAIT, MOST_TTL, MOST_WAIT

LockName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?$"),
    Shaped("1 to 100 of A-Z a-z 0-9 and inner . _ -"),
]
"""The name of a lock: it is a row key, and a part of a path."""
Holder = Annotated[
    str,
    StringConstraints(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f\x7f]*$"),
    Shaped(TEXT.format(64) + ", not empty"),
]
Nonce = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,40}$"), Shaped("1 to 40 of A-Z a-z 0-9 _ -")]
Version = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,400}$"), Shaped("the `version` of the latest answer")]
MOST_TOKEN = 2**53 - 1
Token = Annotated[int, Field(ge=1, le=MOST_TOKEN)]


class LockIn(Strict):
    """A request for a lock, or the renewal of a grant."""

    holder: Holder = Field(description="Names the caller for people, such as its host and process id.")
    nonce: Nonce = Field(
        description="Names this attempt to hold the lock; choose a random one for each. A repeated request of the same holder and nonce"
        " gets the same grant, and one that arrives after the release gets nothing.",
    )
    ttl: Annotated[Duration, Field(ge=LEAST_TTL, le=MOST_TTL)] = Field(
        DEFAULT_TTL, description="Validity that a new grant gets. A renewal does not change it."
    )
    wait: Maybe[Annotated[Duration, Field(ge=LEAST_WAIT, le=MOST_WAIT)]] = Field(
        None, description="Wait in the lock's queue. The caller leaves it unless it asks again within this time. Missing: do not wait."
    )
    token: Maybe[Token] = Field(None, description="Token of the grant to renew. Missing: any grant of this holder and nonce, or a new one.")
    version: Maybe[Version] = Field(
        None, description="`version` of the latest answer about this grant. With it a renewal costs one request to storage, not two."
    )


class LockHeldOut(Strict):
    """The caller holds the lock."""

    state: Literal["held"] = "held"
    token: int = Field(description="Fencing token: greater than that of every earlier grant of this lock.")
    valid_ms: int = Field(description="Validity in milliseconds. The caller counts it on its own clock, from the SEND of this request.")
    version: str = Field(description="Send it with the next renewal.")


class LockWaitingOut(Strict):
    """The caller waits for the lock."""

    state: Literal["waiting"] = "waiting"
    ahead: int = Field(description="Waiters before the caller.")
    retry_ms: int = Field(description="Milliseconds after which the caller should ask again.")


class LockWaiterOut(Strict):
    """A waiter of a lock."""

    holder: str
    since: Stamp


class LockOut(Strict):
    """A lock as stored. After its last grant has run out or was released, it is free."""

    name: str
    state: Literal["held", "free", "revoked"] = Field(description="`revoked`: the grant cannot be renewed, and runs out.")
    token: int = Field(description="Token of the last grant.")
    holder: Maybe[str] = Field(None, description="Missing while the lock is free.")
    granted: Maybe[Stamp] = None
    renewed: Maybe[Stamp] = None
    free_at: Maybe[Stamp] = Field(
        None, description="Time at which others can get the lock, unless the grant is renewed or released before."
    )
    waiters: list[LockWaiterOut]
    note: Maybe[str] = Field(None, description="Reason of the revocation.")
    author: Maybe[str] = Field(None, description="Prefix of the key that revoked the grant.")


class LockList(Strict):
    """A page of locks."""

    items: list[LockOut]
    next: str | None


class LockReleaseQuery(Query):
    """`?holder=&nonce=`, or `?token=` of a holder that has stopped."""

    holder: Annotated[Holder | None, Field(description="As in the request for the lock.")] = None
    nonce: Annotated[Nonce | None, Field(description="As in the request for the lock.")] = None
    token: Annotated[
        Annotated[Whole, Field(ge=1, le=MOST_TOKEN)] | None,
        Field(description="Release this grant only. Without holder: its holder is known to have stopped."),
    ] = None


class LockRevokeIn(Strict):
    """The reason for a revocation."""

    note: Note


class LockRevokedOut(Strict):
    """The outcome of a revocation."""

    free_after_ms: int = Field(description="Milliseconds until the lock can be granted again; 0 if nobody holds it.")
