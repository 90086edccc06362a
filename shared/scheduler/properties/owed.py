"""Work that is owed after an event has ended: marks on its own row, which is its outbox. Pure.

    firing --settle--> delivered | dead | lapsed, owed: "callback", "notice" or both     (one write: the transaction that settles the event)
    the callback is stored as an event, under an id that follows from the place of the settled row; the end is added to the tenant's notices
    owed: "", callback: its id                                                           (the owner, with the gate)

A shard with such a mark is not finished, so an owner that ends in between is followed by one that finds the mark. The callback may then be
stored a second time, which its id turns into a look. Events without callbacks have neither property.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

import orjson

from ...storage.ports import Props

CALLBACKS: Final = "callbacks"
"""Property of an event row: the channels of its callbacks by outcome, as JSON. Absent or '': none."""
CALLBACKS_PATCH: Final = "callbacks_patch"
"""Key of a change that is about to be made: the outcomes whose channel it sets, or takes away (null), as JSON. No row has it."""
OWED: Final = "owed"
"""Property of an ended event: what is still owed, '' once it is done. Absent: nothing ever was."""
CALLBACK: Final = "callback"
"""Part of the value of `OWED`; and the property of an ended event that holds the id of its callback."""
CALLBACK_OF: Final = "callback_of"
"""Property of a callback: the id of the event that it is about. Absent: not a callback."""
NOTICE: Final = "notice"
"""Part of the value of `OWED` if the tenant's notices are to tell of the end; and the property of an event that is a notice: its kind. A
notice that dies is not told."""
OUTCOMES: Final = ("delivered", "dead")
"""The outcomes that may have a callback."""


class NamesCallbacks(Protocol):
    """Whatever names the channels of callbacks: an event, or a schedule for its events."""

    on_delivered: str | None
    on_dead: str | None


def callbacks_props(delivered: str | None, dead: str | None) -> Props:
    """Return the properties of an event with these channels of callbacks."""
    given = {name: channel for name, channel in zip(OUTCOMES, (delivered, dead), strict=True) if channel is not None}
    return {CALLBACKS: orjson.dumps(given).decode()} if given else {}


def callback_channels(props: Mapping[str, Any]) -> dict[str, str]:
    """Return the channels of an event's callbacks, by outcome."""
    found: dict[str, str] = orjson.loads(str(props[CALLBACKS])) if props.get(CALLBACKS) else {}
    return found


def with_callbacks(change: Props, props: Mapping[str, Any]) -> Props:
    """Return a change as it is written to a row with these properties: a patch of its callbacks is merged with those that it has now."""
    if CALLBACKS_PATCH not in change:
        return change
    merged = {**callback_channels(props), **orjson.loads(str(change[CALLBACKS_PATCH]))}
    rest = {name: value for name, value in change.items() if name != CALLBACKS_PATCH}
    return {**rest, CALLBACKS: "", **callbacks_props(merged.get("delivered"), merged.get("dead"))}


def callback_channel(props: Mapping[str, Any], state: str) -> str | None:
    """Return the channel of the callback of an event that ends in `state`, if it names one. A lapsed event counts as dead."""
    if not props.get(CALLBACKS) or CALLBACK_OF in props:
        return None
    return callback_channels(props).get("dead" if state == "lapsed" else state)


def owed_after(props: Mapping[str, Any], state: str, notices: bool = False) -> Props:
    """Return the mark that the write which ends an event in `state` must carry: none for an event without such a callback.

    notices: the tenant subscribes to notices of events that end without a delivery.
    """
    parts = [CALLBACK] if callback_channel(props, state) is not None else []
    if notices and state in ("dead", "lapsed") and NOTICE not in props:
        parts.append(NOTICE)
    return {OWED: " ".join(parts)} if parts else {}


def done(callback: str = "") -> Props:
    """Return the change of an ended event to which nothing is owed any more. callback: the id of its callback, '' if it has none."""
    return {OWED: "", CALLBACK: callback} if callback else {OWED: ""}
