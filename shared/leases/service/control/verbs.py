"""What each verb changes of a fleet's rows, and what refuses it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ....core.clock import Millis
from ....storage.ports import ANY, Delete, Merge, Op, Upsert
from ....web.problem import conflict
from ...rows import NO_PARTITION, Intent, Partition, Server, Verb, server_key
from ..snapshot import Versioned
from .model import AnyVerb

MAX_INTENTS: Final = 5000
"""Words that may stand in one fleet at a time."""


class Revocation(NamedTuple):
    """What a verb takes back, and what to answer when there is nothing to take back."""

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
    """What an operator says. partition: `NO_PARTITION` for verbs on a server. expires: 0 for never."""

    verb: AnyVerb
    partition: int
    server: str
    note: str
    author: str
    said: Millis
    expires: Millis = 0
    exit: bool = False


class IntentChange(NamedTuple):
    """intent: what stands now, or what was taken back. ops: the writes beside that of the fleet's row; none when it stands already."""

    intent: Intent
    ops: tuple[Op, ...]


def decide(word: ControlRequest, intents: Iterable[Intent], partition: Partition | None, server: Versioned[Server] | None) -> IntentChange:
    """What the word changes. intents: all of the fleet's. partition, server: the rows that it is about, where there are any.

    Raises `Problem` 409 for what cannot be: `not-offline`, `not-pinned`, `not-prohibited`, `not-drained`, `not-owned`, `prohibited`,
    `too-many-intents`.
    """
    standing = {intent.key: intent for intent in intents if not intent.expires or word.said < intent.expires}
    undo = REVOCATIONS.get(word.verb)
    if undo is not None:
        return _taken_back(word, undo, standing, server)
    new = intended(word, partition)
    _refuse(word, new, standing, partition)
    before = standing.get(new.key)
    ops: list[Op] = [] if before is not None and replace(before, created=new.created) == new else [Upsert(new.key, new.props())]
    if word.verb == "bump" and word.server:
        also = replace(new, verb="prohibit", epoch=0)
        had = standing.get(also.key)
        ops += [] if had is not None and replace(had, created=also.created) == also else [Upsert(also.key, also.props())]
    ops += _told(word, server, {**standing, new.key: new})
    if len(standing) >= MAX_INTENTS and before is None:
        raise conflict("too-many-intents", f"{MAX_INTENTS:,} words of operators stand already; take some back")
    return IntentChange(new if ops or before is None else before, tuple(ops))


def intended(word: ControlRequest, partition: Partition | None) -> Intent:
    """The intent that a word leaves."""
    verb = word.verb
    assert verb in ("offline", "prohibit", "pin", "drain", "bump")
    epoch = partition.epoch if verb == "bump" and partition is not None else 0
    return Intent(verb, word.partition, word.server, word.note, word.author, word.expires, epoch, word.exit, word.said)


def _refuse(word: ControlRequest, new: Intent, standing: Mapping[str, Intent], partition: Partition | None) -> None:
    if word.verb == "bump" and (partition is None or not partition.owner):
        raise conflict("not-owned", "nobody has the partition, so there is nothing to bump")
    if word.verb == "pin" and Intent("prohibit", word.partition, word.server).key in standing:
        raise conflict("prohibited", "the server is prohibited for the partition; permit it first")


def _taken_back(word: ControlRequest, undo: Revocation, standing: Mapping[str, Intent], server: Versioned[Server] | None) -> IntentChange:
    before = standing.get(Intent(undo.verb, word.partition, word.server).key)
    if before is None:
        other = standing.get(Intent("drain", NO_PARTITION, word.server).key) if word.verb == "permit" else None
        hint = "; it is drained: undrain it" if other is not None and word.partition == NO_PARTITION else ""
        raise conflict(undo.code, undo.detail + hint)
    ops = [Delete(before.key, ANY), *_told(word, server, {key: intent for key, intent in standing.items() if intent is not before})]
    return IntentChange(replace(before, note=word.note, author=word.author, created=word.said, expires=0), tuple(ops))


def _told(word: ControlRequest, server: Versioned[Server] | None, standing: Mapping[str, Intent]) -> list[Op]:
    """Tell a living server; the write changes its row's ETag, so that its next beat finds it.

    Only servers that speak HTTP are told that they are drained: the others hear of it as orders.
    """
    if word.partition != NO_PARTITION or server is None or server.value.state == "dead":
        return []
    drained = standing.get(Intent("drain", server=word.server).key)
    out = drained is not None or Intent("prohibit", server=word.server).key in standing
    tell = "exit" if drained is not None and drained.exit else "drain" if out and not server.value.scans else ""
    return [Merge(server_key(word.server), {"tell": tell}, server.etag)] if tell != server.value.tell else []
