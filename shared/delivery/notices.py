"""Notices: what a tenant can have told to one of its channels about the operation of its events, channels, schedules and keys."""

from __future__ import annotations

from typing import Final, Literal, Protocol, get_args

type NoticeKind = Literal[
    "event.dead",
    "breaker.opened",
    "breaker.closed",
    "channel.paused",
    "schedule.missed",
    "schedule.ended",
    "limit.reached",
    "key.expired",
]
KINDS: Final[tuple[NoticeKind, ...]] = get_args(NoticeKind.__value__)
ABOUT_CHANNELS: Final = frozenset({"breaker.opened", "breaker.closed", "channel.paused"})
"""Kinds whose subject is a channel. The channel of the notices has none: they could not be delivered, or would cause more of them."""


class Notify(Protocol):
    """Has tenants told what happens to them."""

    async def __call__(self, tenant: str, kind: NoticeKind, subject: str, detail: str = "", count: int = 1) -> None:
        """Note `count` happenings, to be called before others can see them. Nothing is done for tenants that do not subscribe to the kind.

        subject: the channel, schedule, limit or key's prefix that it is about. Raises `StorageError`: then the happening may not be noted.
        """
        ...


async def notify_nobody(tenant: str, kind: NoticeKind, subject: str, detail: str = "", count: int = 1) -> None:
    """Do nothing: a `Notify` where nobody subscribes."""
