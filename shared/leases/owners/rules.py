"""Decides which server takes the deliveries of a partition now. Pure.

The fleet's newest generation decides: from the moment at which a resize is stored, keys map by the new count, and events wait until the
new partition is open and owned. Safety does not depend on what is decided here: the receiver checks its own lease.
"""

from __future__ import annotations

from typing import Final

from ...delivery.fleet_owners.model import PartitionOwner
from ..rows import ActiveIntents, Fleet, Partition, Server
from ..rules import has_ended, placement_refusal

AGE_ERROR: Final = 1.0
"""Seconds by which the age of a row can be measured too long: storage cuts times to seconds."""


def owner_of(
    fleet: str, stored: Fleet | None, number: int, partition: Partition | None, server: Server | None, age: float, intents: ActiveIntents
) -> PartitionOwner:
    """Return the owner of partition `number` as deliveries see it. stored: None if there is no such fleet.

    server: the row of the partition's owner, read after the partition's. age: seconds since its last write, in storage's time.
    """
    if stored is None:
        return PartitionOwner(fleet, 0, number, hold="absent", why="cannot be served: the tenant has no fleet of this name")
    none = PartitionOwner(fleet, stored.generation, number, partition.epoch if partition is not None else 0, hold="absent")
    if number in intents.offline:
        return none._replace(why="is offline by a manual control")
    if partition is None or partition.closed or partition.generation != stored.generation:
        return none._replace(why="has no owner: the fleet is being resized" if stored.former or partition else "has no owner")
    if not partition.owner:
        return none._replace(why="has no owner")
    if server is None or has_ended(partition.incarnation, server) or server.kept or server.http.evicted:
        return none._replace(why=f"has no owner: {partition.owner} has ended")
    validity = _validity(stored, server)
    if age > validity + AGE_ERROR:
        return none._replace(why=f"has no owner: {server.name} has sent no heartbeat for {age:.0f} s")
    if not server.endpoint:
        return none._replace(why=f"cannot be delivered to: its owner {server.name} has published no endpoint")
    owner = PartitionOwner(fleet, stored.generation, number, partition.epoch, server.name, partition.incarnation, server.endpoint)
    owner = owner._replace(failover=round(1000 * (validity + stored.profile.takeover)))
    refusal = placement_refusal(number, server, intents)
    if refusal == "maintenance":
        return owner._replace(hold="leaving", why=f"waits: its owner {server.name} prepares for maintenance")
    if refusal is not None or number in server.drop or (number, partition.epoch) in intents.bumps:
        return owner._replace(hold="leaving", why=f"waits: {server.name} hands it off")
    return owner


def _validity(fleet: Fleet, server: Server) -> float:
    """Return V of the server in seconds: a server that speaks HTTP keeps the one of its registration."""
    return float(server.http.terms.partition(":")[2]) if server.http.terms else fleet.profile.validity
