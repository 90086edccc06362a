"""Close a fleet before a change that no server may run under, so that no server can register unnoticed.

A server that registers reads the fleet's row again after it has written its own row, and leaves if the fleet is closed, gone or changed.
A writer that closes the fleet reads the servers' rows after it has written the mark. At least one of the two therefore sees the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from ...engine.effects import Steps, load, write
from ...storage.names import FLEETS
from ...storage.ports import Applied, Replace
from .. import unreadable_rows
from ..rows import FLEET, SERVERS, Fleet, parse_server


class FleetClosed(NamedTuple):
    """No server runs, and none can register. etag: of the fleet's row."""

    etag: str


class ServersLive(NamedTuple):
    """The names of servers that are not dead."""

    servers: Sequence[str]


def live_servers(key: str) -> Steps[list[str]]:
    """Return the names of the servers that are not dead, or may not be."""
    rows = yield from load(FLEETS, key, *SERVERS)
    known, unreadable = unreadable_rows.parse_rows(rows, parse_server)
    return sorted([server.name for _, server in known if server.state != "dead"] + [*unreadable_rows.unreadable_servers(unreadable)])


def close(key: str, fleet: Fleet, etag: str) -> Steps[FleetClosed | ServersLive | Literal["changed"]]:
    """Close the fleet unless servers live. `changed`: its row has changed, or an answer was lost.

    Can be interrupted and repeated: an interrupted call leaves a closed fleet, in which no server can register until its row is written
    again or the takeover sweep reopens it.
    """
    if found := (yield from live_servers(key)):
        if fleet.closed:
            # An interrupted call has left the fleet closed, so that no server could register.
            yield from write(FLEETS, key, Replace(FLEET, replace(fleet, closed=False).props(), etag))
        return ServersLive(found)
    answer = yield from write(FLEETS, key, Replace(FLEET, replace(fleet, closed=True).props(), etag))
    if not isinstance(answer, Applied):
        return "changed"
    closed = answer.etags[0]
    if found := (yield from live_servers(key)):
        yield from write(FLEETS, key, Replace(FLEET, replace(fleet, closed=False).props(), closed))
        return ServersLive(found)
    return FleetClosed(closed)
