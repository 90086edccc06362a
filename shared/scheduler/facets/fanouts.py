"""The ids of a fan-out's events, and what their rows say of it. Pure.

    TocsinIds     {id}              names the first event, by the order of the channels' names
    TocsinIds     {id}@{channel}    names the event for the channel, as the id of any event does

The service gives ids that begin with `f~`. The first event is stored before the others, and its place is named by both ids before. So one
write decides which request has the id, and a repeated request finds the first event and stores what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ..keys import digest
from ..rows import CHANNELS, FANOUT, EventToStore

MADE: Final = "f~"
"""Beginning of the ids that the service gives."""


def member_id(fanout: str, channel: str) -> str:
    """Return the id of the event for one channel."""
    return f"{fanout}@{channel}"


def id_names(props: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the ids whose rows name this event: none for an event whose id contains its place."""
    own = str(props["id"])
    if "." in own:
        return ()
    return (str(props[FANOUT]), own) if CHANNELS in props else (own,)


def channels_of(first: Mapping[str, Any]) -> list[str]:
    """Return the channels of a fan-out from the properties of its first event."""
    return str(first[CHANNELS]).split(",")


def fanned_out(event: EventToStore, fanout: str, channels: Sequence[str]) -> list[EventToStore]:
    """Return one event for each channel, in their order. event: the one for the first channel, whatever its id; or one that was cancelled
    before it was stored, which names no channel.
    """
    common = digest("fan-out", event.hash, *channels).hex()

    def member(channel: str) -> EventToStore:
        own = member_id(fanout, channel)
        # Strings are shared, so that a payload is in memory once.
        aimed = channel if event.props["channel"] else ""
        return replace(event, props={**event.props, "id": own, "channel": aimed, FANOUT: fanout}, id=own, hash=common)

    first, *others = map(member, channels)
    first.props[CHANNELS] = ",".join(channels)
    return [first, *others]
