"""The transactions of one partition, in the order that the ETags prove.

Each operation is conditional on an ETag, and was answered with a new one: the ETags of a row are a chain, and a transaction that writes
several rows ties their chains together. Wall clocks decide only between transactions whose order no ETag proves; no rule compares
such transactions.

A trace can have gaps: sampling began late, a process was killed before it could log, lines were lost. A gap is a place
where a transaction names an ETag that no line has given. It is no violation. The line has the row as its writer had read it: this is then
the state before.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...storage.ports import ANY
from ...storage.transition_trace import SeenRow
from .lines import TracedOp, TraceLine


class RowVersion(NamedTuple):
    """A version of a row. props: None if it was deleted. complete: False if properties from before a gap are missing.
    ordinal: of the row's versions in this trace. by: the process that wrote it."""

    etag: str
    props: dict[str, Any] | None
    complete: bool
    ordinal: int
    by: str


class RowChange(NamedTuple):
    """An operation with its row before and after. known: False if the state before is not known."""

    op: TracedOp
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    known: bool
    complete: bool
    seen: SeenRow | None
    since: str
    """The process that wrote the version before; '' if it is not known."""


_NOTHING = RowVersion("", None, True, 0, "")


@dataclass(slots=True)
class PartitionHistory:
    """The replay of one partition: the rows as the trace shows them up to now."""

    lines: Sequence[TraceLine]
    rows: dict[str, RowVersion] = field(default_factory=dict)
    last: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The last content of each row, also of removed ones."""
    gaps: int = 0
    """Transactions whose former row is not the one that the trace shows."""
    inferred: int = 0
    """Transactions with a lost answer that were applied, as the ETag after them shows."""
    whole: bool = True
    """True while every change of every row since its creation is known."""
    broken: str = ""
    """The reason why no store can have applied the latest transaction; '' if there is none."""
    _lost: dict[tuple[str, str], list[TraceLine]] = field(default_factory=lambda: defaultdict(list))
    _taken: dict[tuple[str, str], TraceLine] = field(default_factory=dict)
    _given: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    ordinals: dict[tuple[str, str], int] = field(default_factory=dict)
    """The ordinal of each version, by row key and ETag."""

    def __post_init__(self) -> None:
        for line in self.lines:
            for op in line.ops:
                if line.lost:
                    self._lost[op.rk, op.required].append(line)
                elif op.given:
                    self._given[op.rk, op.given] += 1

    def replay(self, line: TraceLine) -> list[RowChange]:
        """Apply one transaction, and return its changes."""
        self.broken = ""
        if line.cut:
            self.whole = False
        return [self._change(line, op) for op in line.ops]

    def _change(self, line: TraceLine, op: TracedOp) -> RowChange:
        former = self.rows.get(op.rk)
        before, known = self._before(line, op, former)
        after: dict[str, Any] | None
        complete = True
        if op.verb == "d":
            after = None
        elif op.verb == "m":
            after = {**(before or {}), **op.props}
            complete = known and before is not None
        else:
            after = dict(op.props)
        ordinal = 1 + (former.ordinal if former is not None else 0)
        since = former.by if former is not None and former.etag == op.required else ""
        self._store(op.rk, RowVersion(op.given, after, complete, ordinal, line.by))
        self.ordinals[op.rk, op.given] = ordinal
        return RowChange(op, before, after, known, complete, line.seen.get(op.rk), since)

    def _before(self, line: TraceLine, op: TracedOp, former: RowVersion | None) -> tuple[dict[str, Any] | None, bool]:
        """Return the row before an operation, and True if it is known."""
        if op.verb == "i":
            return None, True
        if op.verb == "u" or op.required == ANY:
            return (former.props, former.complete) if former is not None else (None, False)
        self._check_taken(line, op)
        if former is not None and former.etag == op.required:
            return former.props, former.complete
        if former is not None and not former.etag:
            # A lost answer left this version without an ETag: a missing line could have written another one since.
            return former.props, False
        seen = line.seen.get(op.rk)
        if self._infer(op, former or _NOTHING, seen):
            version = self.rows[op.rk]
            return version.props, version.complete
        self.gaps += 1
        self.whole = False
        if seen is not None and seen.etag == op.required:
            return dict(seen.props), True
        return None, False

    def _check_taken(self, line: TraceLine, op: TracedOp) -> None:
        """Note two transactions that replaced the same version: a store that lost a write between them, or rows that were restored.
        Emulators can give one ETag twice."""
        key = op.rk, op.required
        other = self._taken.get(key)
        if other is not None and self._given[key] < 2 and op.given != op.required:
            self.broken = (
                f"{op.rk} was replaced twice at the same version: by {other.by} line {other.number}, and by {line.by} line {line.number}: "
                "storage has lost a write, as a restore or a failover with loss does"
            )
        if op.given != op.required:
            self._taken[key] = line

    def _infer(self, op: TracedOp, former: RowVersion, seen: SeenRow | None) -> bool:
        """Apply a transaction whose answer was lost, if a later reading of the row shows that it was applied; then return True. Without
        that reading, a missing line could explain the ETag as well."""
        if seen is None or seen.etag != op.required:
            return False
        for line in self._lost.get((op.rk, former.etag), ()):
            [own] = [each for each in line.ops if each.rk == op.rk]
            props = {**(former.props or {}), **own.props} if own.verb == "m" else dict(own.props)
            if own.verb == "d" or any(seen.props.get(name) != value for name, value in props.items()):
                continue
            self._store(op.rk, RowVersion(op.required, props, former.complete, former.ordinal + 1, line.by))
            self.ordinals[op.rk, op.required] = former.ordinal + 1
            self.inferred += 1
            for each in line.ops:
                if each.rk != op.rk and (each.rk not in self.rows or self.rows[each.rk].etag in ("", each.required)):
                    self._apply_lost(line, each)
            return True
        return False

    def _apply_lost(self, line: TraceLine, op: TracedOp) -> None:
        """Apply another row of a transaction whose answer was lost. Its new ETag is not known."""
        former = self.rows.get(op.rk)
        before = former.props if former is not None else None
        props = {**(before or {}), **op.props} if op.verb == "m" else dict(op.props)
        ordinal = 1 + (former.ordinal if former is not None else 0)
        self._store(op.rk, RowVersion("", None if op.verb == "d" else props, True, ordinal, line.by))

    def _store(self, rk: str, version: RowVersion) -> None:
        self.rows[rk] = version
        if version.props is not None:
            self.last[rk] = version.props


def ordered(lines: Sequence[TraceLine]) -> list[TraceLine]:
    """Return the applied transactions so that each follows those that its ETags name."""
    applied = [line for line in lines if not line.lost]
    makers: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, line in enumerate(applied):
        for op in line.ops:
            if op.given:
                makers[op.rk, op.given].append(index)
    waits: list[int] = [0] * len(applied)
    after: dict[int, set[int]] = defaultdict(set)

    def follows(index: int, key: tuple[str, str]) -> None:
        for maker in makers.get(key, ()):
            if maker != index and maker not in after[index] and index not in after[maker]:
                after[maker].add(index)
                waits[index] += 1

    for index, line in enumerate(applied):
        for op in line.ops:
            if op.required not in ("", ANY) and not (len(makers.get((op.rk, op.required), ())) > 1 and op.given == op.required):
                follows(index, (op.rk, op.required))
        for rk, seen in line.seen.items():
            if len(makers.get((rk, seen.etag), ())) == 1:
                follows(index, (rk, seen.etag))
    place = [(line.at, line.by, line.number) for line in applied]
    ready = [(place[index], index) for index in range(len(applied)) if not waits[index]]
    heapq.heapify(ready)
    found: list[TraceLine] = []
    done: set[int] = set()
    while len(found) < len(applied):
        if not ready:
            # An emulator gave ETags that name each other in a circle: the earliest by its clock goes first.
            left = min((place[index], index) for index in range(len(applied)) if index not in done)
            heapq.heappush(ready, left)
        _, index = heapq.heappop(ready)
        if index in done:
            continue
        done.add(index)
        found.append(applied[index])
        for next_ in sorted(after[index]):
            waits[next_] -= 1
            if not waits[next_]:
                heapq.heappush(ready, (place[next_], next_))
    return found


def by_partition(lines: Collection[TraceLine]) -> Mapping[tuple[str, str], list[TraceLine]]:
    """Return the lines of each partition; a line that was given twice counts once."""
    found: dict[tuple[str, str], list[TraceLine]] = defaultdict(list)
    known: set[tuple[str, int]] = set()
    for line in lines:
        if (line.by, line.number) not in known:
            known.add((line.by, line.number))
            found[line.kind, line.partition].append(line)
    return found
