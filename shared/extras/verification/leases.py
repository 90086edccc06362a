"""Judges a fleet's servers and partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...leases import transition_rules
from ...leases.rows import FLEET, PARTITIONS, SERVERS, Fleet, Partition, Server, parse_fleet, parse_partition, parse_server
from ...storage.ports import ANY, Row
from ...storage.transition_trace import SeenRow
from .history import PartitionHistory, RowChange
from .lines import TraceLine

_UNTRACED = {"domain": "", "capacity": 0, "load": 0.0, "avoid": "", "expect": "", "holds": ""}
"""Values for properties that every server's row has and a trace leaves out."""


class LeaseJudge:
    """Judges the transactions of one fleet, in order."""

    def __init__(self, history: PartitionHistory) -> None:
        self._history = history
        self._owners: dict[tuple[str, int], tuple[str, str]] = {}
        self._claimed: dict[str, tuple[str, int]] = {}
        """By row key of a partition: the row key and the ordinal of the owner's row in the transaction of its claim."""
        self._writers: dict[tuple[str, str], str] = {}
        """The process of each incarnation, by row key and incarnation."""
        self._beaten: dict[str, str] = {}
        """The version of each server's row that its last heartbeat made. Silence is counted from it: other writes are no heartbeats."""

    def judge(self, line: TraceLine, changes: Sequence[RowChange]) -> Iterator[str]:
        """Yield the rules that a transaction breaks."""
        servers: list[RowChange] = []
        for change in changes:
            if change.op.rk.startswith(SERVERS[0]):
                servers.append(change)
                yield from self._server(line, change)
        for change in changes:
            if change.op.rk.startswith(PARTITIONS[0]):
                yield from self._partition(line, change, servers)

    def finish(self) -> Iterator[tuple[TraceLine, str]]:
        """Return nothing: no rule is judged after the last step."""
        return iter(())

    def _server(self, line: TraceLine, change: RowChange) -> Iterator[str]:
        if change.op.verb in "mr" and change.op.required == ANY:
            yield f"the row {change.op.rk} is written whatever its ETag: a server that was fenced could do so too"
        after = _server(change.op.rk, change.after if change.complete else None)
        if change.op.verb == "d" or after is None:
            return
        before = _server(change.op.rk, change.before)
        writer = self._writers.get((change.op.rk, after.incarnation))
        itself = line.by == writer if writer is not None and after.scans else None
        fleet = _fleet(line.seen.get(FLEET))
        takeover = fleet.profile.takeover if fleet is not None else None
        if before is not None or change.op.verb == "i":
            age = change.seen.age if change.seen is not None and change.seen.etag == self._beaten.get(change.op.rk) else None
            yield from filter(None, [transition_rules.judge_server(before, after, age=age, takeover=takeover, itself=itself)])
        if before is None or (before.incarnation, before.beat) != (after.incarnation, after.beat):
            self._writers.setdefault((change.op.rk, after.incarnation), line.by)
            self._beaten[change.op.rk] = change.op.given

    def _partition(self, line: TraceLine, change: RowChange, servers: Sequence[RowChange]) -> Iterator[str]:
        if change.op.verb in "mr" and change.op.required == ANY:
            yield f"the row {change.op.rk} is written whatever its ETag: a partition that another server has could be claimed"
        before, after = _partition(change.op.rk, change.before), _partition(change.op.rk, change.after if change.complete else None)
        if change.op.verb == "d" or after is None:
            return
        writers = [_server(each.op.rk, each.after if each.complete else None) for each in servers]
        if servers and None in writers:
            return
        named = [
            each for each in writers if each is not None and each.incarnation in (after.incarnation, before.incarnation if before else "")
        ]
        writer = next(iter(named), None)
        if before is not None or change.op.verb == "i":
            seen = line.seen.get(f"{SERVERS[0]}{before.owner}") if before is not None and before.owner else None
            owner = _server(f"{SERVERS[0]}{before.owner}", seen.props) if before is not None and seen is not None else None
            yield from filter(None, [transition_rules.judge_partition(before, after, owner, writer, known=owner is not None)])
            if before is not None and seen is not None and after.owner and after.owner != before.owner:
                yield from self._stale(change.op.rk, before, seen)
        yield from self._one_owner(change.op.rk, after)
        if after.owner and servers:
            rk = servers[0].op.rk
            self._claimed[change.op.rk] = rk, self._history.rows[rk].ordinal

    def _stale(self, rk: str, before: Partition, seen: SeenRow) -> Iterator[str]:
        """Judge that the owner's row was read after the row that names it."""
        owner = f"{SERVERS[0]}{before.owner}"
        named, since = self._claimed.get(rk, ("", 0))
        ordinal = self._history.ordinals.get((owner, seen.etag))
        if named == owner and ordinal is not None and ordinal < since:
            yield f"{rk} is claimed on a reading of {owner} from before {before.owner} had claimed it"

    def _one_owner(self, rk: str, after: Partition) -> Iterator[str]:
        if not after.owner:
            return
        mine = after.owner, after.incarnation
        known = self._owners.setdefault((rk, after.epoch), mine)
        if known != mine:
            yield f"epoch {after.epoch} of partition {after.number} has two owners: {' '.join(known)} and {' '.join(mine)}"


def _row(rk: str, props: dict[str, Any]) -> Row:
    return Row("", rk, props, "", 0, 0)


def _server(rk: str, props: dict[str, Any] | None) -> Server | None:
    try:
        return parse_server(_row(rk, {**_UNTRACED, **props})) if props else None
    except (KeyError, TypeError, ValueError):
        return None


def _partition(rk: str, props: dict[str, Any] | None) -> Partition | None:
    try:
        return parse_partition(_row(rk, props)) if props else None
    except (KeyError, TypeError, ValueError):
        return None


def _fleet(seen: SeenRow | None) -> Fleet | None:
    try:
        return parse_fleet(seen.props) if seen is not None else None
    except (KeyError, TypeError, ValueError):
        return None
