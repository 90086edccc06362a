"""Judges which changes of servers' and partitions' rows are legal. Pure: the model checker judges its worlds by these functions, and
`tocsin verify-trace` judges what production has logged. Each returns a sentence that names the broken rule, or ''.
"""

from __future__ import annotations

from typing import Final

from ..core.clock import Millis
from .rows import Partition, Server
from .rules import has_ended, may_replace

STEP: Final[Millis] = 2000
"""Milliseconds by which an age by the service's times may be too small: `Date` has whole seconds, and its clocks differ by one."""


def judge_server(
    before: Server | None, after: Server, *, age: Millis | None = None, takeover: float | None = None, itself: bool | None = None
) -> str:
    """Judge a write of a server's row.

    age: of the row when the writer read it. takeover: T in seconds. itself: the server wrote it. None: not known.
    """
    if before is None or before.incarnation != after.incarnation:
        return _judge_registration(before, after, age=age, takeover=takeover)
    if before.state == "dead" and after.state != "dead":
        return f"{after.name} comes back to life as incarnation {after.incarnation}, which was fenced"
    if before.kept and not after.kept:
        return f"incarnation {after.incarnation} of {after.name} acts after its last heartbeat"
    if before.kept and after.beat != before.beat:
        return f"incarnation {after.incarnation} of {after.name} sends heartbeat {after.beat} after its last one, {before.beat}"
    if after.beat < before.beat:
        return f"the heartbeat of {after.name} goes back from {before.beat} to {after.beat}"
    if before.state != "dead" and after.state == "dead" and itself is False and _is_early(age, takeover):
        return f"{after.name} is fenced {age} ms after its row was written, before T = {takeover:g} s"
    if before.http.evicted and not after.http.evicted:
        return f"incarnation {after.incarnation} of {after.name} is no longer evicted"
    return ""


def _judge_registration(before: Server | None, after: Server, *, age: Millis | None, takeover: float | None) -> str:
    if after.state == "dead" and before is not None:
        return f"{after.name} registers as dead"
    if before is None or may_replace(before, ()) or before.scans:
        # A server with the library may hold the proof, in its own folder, that the incarnation before it has ended.
        return ""
    if _is_early(age, takeover):
        return f"{after.name} replaces incarnation {before.incarnation} {age} ms after its row was written, before T = {takeover:g} s"
    return ""


def _is_early(age: Millis | None, takeover: float | None) -> bool:
    return age is not None and takeover is not None and age + STEP < takeover * 1000


def judge_partition(before: Partition | None, after: Partition, owner: Server | None, writer: Server | None, *, known: bool = True) -> str:
    """Judge a write of a partition's row.

    owner: the row of the former owner's server, read after the partition's row; None if there is none. writer: the server's row that the
    same transaction changes, as it is after it; None if it changes none. known: False if the former owner's row is not in the trace.
    """
    if before is None:
        if after.owner and (writer is None or writer.incarnation != after.incarnation):
            return f"partition {after.number} is made with the owner {after.owner}, whose row the transaction does not name"
        return ""
    if after.epoch < before.epoch:
        return f"the epoch of partition {after.number} goes back from {before.epoch} to {after.epoch}"
    if (before.owner, before.incarnation) == (after.owner, after.incarnation):
        return f"the epoch of partition {after.number} changes under its owner {after.owner}" if _changes_under(before, after) else ""
    if after.owner:
        return _judge_claim(before, after, owner, writer, known=known)
    released = writer is not None and writer.incarnation == before.incarnation
    if not released and known and not has_ended(before.incarnation, owner):
        return f"partition {after.number} is taken from {before.owner}, which has not ended"
    return ""


def _changes_under(before: Partition, after: Partition) -> bool:
    return bool(after.owner) and after.epoch != before.epoch


def _judge_claim(before: Partition, after: Partition, owner: Server | None, writer: Server | None, *, known: bool) -> str:
    claim = f"{after.owner} claims partition {after.number}"
    if after.epoch == before.epoch:
        return f"{claim} under epoch {after.epoch}, which {before.owner or 'another owner'} had"
    if writer is None or (writer.name, writer.incarnation) != (after.owner, after.incarnation):
        return f"{claim} without a heartbeat of incarnation {after.incarnation} in the transaction"
    if writer.state == "dead":
        return f"{claim}, although it is fenced"
    if before.closed:
        return f"{claim}, which is closed by a resize"
    if before.owner and known and not has_ended(before.incarnation, owner):
        return f"{claim} of {before.owner}, incarnation {before.incarnation}, which has not ended"
    return ""
