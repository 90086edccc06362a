"""Changing what no server may run under: a fleet is closed first, and then nobody can have come in unseen.

Who registers reads the fleet's row again after its own row is in, and leaves if the fleet is closed, gone, or other than it was. Who closes
it reads the servers' rows after its mark is in. So of the two at least one sees the other.
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
    """No server runs, and none can come in. etag: of the fleet's row."""

    etag: str


class ServersLive(NamedTuple):
    """These servers are not dead."""

    servers: Sequence[str]


def live_servers(key: str) -> Steps[list[str]]:
    """The names of the servers that are not dead, or may not be."""
    rows = yield from load(FLEETS, key, *SERVERS)
    known, unreadable = unreadable_rows.parse_rows(rows, parse_server)
    return sorted([server.name for _, server in known if server.state != "dead"] + [*unreadable_rows.unreadable_servers(unreadable)])


def close(key: str, fleet: Fleet, etag: str) -> Steps[FleetClosed | ServersLive | Literal["changed"]]:
    """Close the fleet unless servers live. `changed`: its row is no longer what it was, or an answer was lost. Safe to
    abandon and to repeat: a closed fleet goes on as it is, only nobody comes in until it is written again, or the watch finds that nobody
    goes on."""
    if found := (yield from live_servers(key)):
        if fleet.closed:
            # Left by one that was cut short, and nobody could come in any more.
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
