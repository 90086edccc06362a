"""Decide the changes that each verb makes to a fleet's rows, and the reasons to refuse it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ....core.clock import Millis
from ....storage.ports import ANY, Delete, Merge, Op, Upsert
from ....web.problem import conflict
from ...model import AnyVerb
from ...rows import MAINTENANCE_NOTE, NO_PARTITION, Fleet, Intent, Partition, Server, Verb, server_key
from ..snapshot import Versioned

MAX_INTENTS: Final = 5000
"""Manual controls that one fleet can have at a time."""


class Revocation(NamedTuple):
    """A verb that revokes another verb, and the error if there is nothing to revoke."""

    verb: Verb
    code: str
    detail: str


REVOCATIONS: Final[Mapping[AnyVerb, Revocation]] = {
    "online": Revocation("offline", "not-offline", "the partition is not offline"),
    "unpin": Revocation("pin", "not-pinned", "the partition is not pinned to a server"),
    "permit": Revocation("prohibit", "not-prohibited", "the server is not prohibited there"),
    "undrain": Revocation("drain", "not-drained", "the server is not drained"),
}


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """A request of an operator. partition: `NO_PARTITION` for verbs on a server. expires: 0 for never. to: the destination of a drain."""

    verb: AnyVerb
    partition: int
    server: str
    note: str
    author: str
    requested: Millis
    expires: Millis = 0
    exit: bool = False
    to: str | None = None


class IntentChange(NamedTuple):
    """The result of a verb. intent: now in force, or revoked. ops: writes besides the fleet's row; empty if nothing changes. ended: other
    controls that end with it."""

    intent: Intent
    ops: tuple[Op, ...]
    ended: tuple[Intent, ...] = ()


def decide(
    request: ControlRequest,
    fleet: Fleet,
    intents: Iterable[Intent],
    partition: Partition | None,
    server: Versioned[Server] | None,
    destination: Versioned[Server] | None = None,
) -> IntentChange:
    """Return the changes of a request. intents: all of the fleet. partition, server: the target's row, if it exists. destination: the row
    of the drain's destination, if it exists.

    Raises `Problem` 409: `not-offline`, `not-pinned`, `not-prohibited`, `not-drained`, `not-owned`, `prohibited`, `no-destination`,
    `too-many-intents`.
    """
    standing = {intent.key: intent for intent in intents if not intent.expires or request.requested < intent.expires}
    revocation = REVOCATIONS.get(request.verb)
    if revocation is not None:
        return _revoke(request, revocation, standing, server)
    new = intended(request, partition)
    _refuse(request, new, standing, partition)
    before = standing.get(new.key)
    repeated = before is not None and replace(before, created=new.created) == new
    ended = None if repeated else _undrained_destination(request, fleet, standing, destination)
    ops: list[Op] = [] if repeated else [Upsert(new.key, new.props())]
    if request.verb == "bump" and request.server:
        also = replace(new, verb="prohibit", epoch=0)
        had = standing.get(also.key)
        ops += [] if had is not None and replace(had, created=also.created) == also else [Upsert(also.key, also.props())]
    ops += _server_request(server, {**standing, new.key: new}) if request.partition == NO_PARTITION else []
    if ended is not None:
        ops += [Delete(ended.key, ANY), *_server_request(destination, {key: each for key, each in standing.items() if each is not ended})]
    if len(standing) >= MAX_INTENTS and before is None:
        raise conflict("too-many-intents", f"the fleet has {MAX_INTENTS:,} manual controls, the maximum; revoke some first", "controls")
    return IntentChange(new if ops or before is None else before, tuple(ops), (ended,) if ended is not None else ())


def intended(request: ControlRequest, partition: Partition | None) -> Intent:
    """Return the intent that a request stores."""
    verb = request.verb
    assert verb in ("offline", "prohibit", "pin", "drain", "bump")
    epoch = partition.epoch if verb == "bump" and partition is not None else 0
    return Intent(
        verb,
        request.partition,
        request.server,
        request.note,
        request.author,
        request.expires,
        epoch,
        request.exit,
        request.requested,
        request.to,
    )


def _refuse(request: ControlRequest, new: Intent, standing: Mapping[str, Intent], partition: Partition | None) -> None:
    if request.verb == "bump" and (partition is None or not partition.owner):
        raise conflict("not-owned", "the partition has no owner, so there is nothing to bump")
    if request.verb == "pin" and Intent("prohibit", request.partition, request.server).key in standing:
        raise conflict("prohibited", "the server is prohibited for the partition; permit it first, then pin the partition")


def _undrained_destination(
    request: ControlRequest, fleet: Fleet, standing: Mapping[str, Intent], destination: Versioned[Server] | None
) -> Intent | None:
    """Return the drain of the request's destination, which ends with it; None if there is none. Raises `Problem` 409 if it can own nothing.

    A drain of the destination is no obstacle: in a rolling restart, the server that has come back takes the next one's partitions.
    """
    if request.to is None:
        return None
    drained = standing.get(Intent("drain", server=request.to).key)
    if reason := _destination_refusal(request.to, fleet, standing, destination):
        raise conflict("no-destination", f"{request.to} cannot take the partitions: {reason}")
    if Intent("prohibit", server=request.to).key in standing:
        raise conflict("prohibited", f"{request.to} is prohibited; permit it first, then drain {request.server} to it")
    return drained


def _destination_refusal(name: str, fleet: Fleet, standing: Mapping[str, Intent], found: Versioned[Server] | None) -> str | None:
    """Return why a server can own no partitions, apart from drains and prohibitions; None if it can."""
    if found is None or found.value.state == "dead":
        return "it is not a living server of the fleet; start it first"
    if found.age >= fleet.profile.takeover:
        return f"it has sent no heartbeat for {found.age:.0f} s"
    if found.value.kept or found.value.tell == "exit":
        return "it ends; start it again first"
    if found.value.state == "draining":
        return "it hands its own partitions off"
    if Intent("maintain", server=name).key in standing:
        return MAINTENANCE_NOTE
    return None


def _revoke(
    request: ControlRequest, revocation: Revocation, standing: Mapping[str, Intent], server: Versioned[Server] | None
) -> IntentChange:
    before = standing.get(Intent(revocation.verb, request.partition, request.server).key)
    if before is None:
        other = standing.get(Intent("drain", NO_PARTITION, request.server).key) if request.verb == "permit" else None
        hint = "; it is drained: use undrain" if other is not None and request.partition == NO_PARTITION else ""
        raise conflict(revocation.code, revocation.detail + hint)
    ops = [
        Delete(before.key, ANY),
        *(
            _server_request(server, {key: intent for key, intent in standing.items() if intent is not before})
            if request.partition == NO_PARTITION
            else ()
        ),
    ]
    return IntentChange(replace(before, note=request.note, author=request.author, created=request.requested, expires=0), tuple(ops))


def _server_request(server: Versioned[Server] | None, standing: Mapping[str, Intent]) -> list[Op]:
    """Return the write that asks a living server to drain or exit. It changes the row's ETag, so that the next heartbeat reads it.

    Only servers that speak HTTP are asked to drain: the others get orders.
    """
    if server is None or server.value.state == "dead":
        return []
    name = server.value.name
    drained = standing.get(Intent("drain", server=name).key)
    out = drained is not None or Intent("prohibit", server=name).key in standing
    tell = "exit" if drained is not None and drained.exit else "drain" if out and not server.value.scans else ""
    return [Merge(server_key(name), {"tell": tell}, server.etag)] if tell != server.value.tell else []
