"""The plays of notices, and the world that judges them: events end, owners note their ends, and any process stores the notices.

N1: an end that an owner's outbox no longer shows is in a stored notice, in one whose content is fixed, or in what is told next.
N2: a notice is closed only when the event with its content is stored.
N3: without a lost answer or a crash, an end is told once.
N4: the contents of two notices are fixed a period apart at least.
N5: the end of a notice is not told.
N6: there is one event for each notice, whoever stores it.
P1: from every state, without further faults, every end is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from shared.delivery.notices import NoticeKind
from shared.engine.effects import LOST, Load, Write, get
from shared.scheduler.outcomes.notices import (
    PERIOD,
    PK_NOTICES,
    FixedNotice,
    Happening,
    NoticeRow,
    close,
    fix,
    notice_key,
    parse_notice,
    record,
)
from shared.scheduler.properties.owed import NOTICE, OWED, done, owed_after
from shared.storage.names import SWEEPS
from shared.storage.ports import Insert, Merge
from tests.model.checking.checker import Violation
from tests.model.checking.state import Budget, Cell, Now, Play, State, Told, Until
from tests.model.shards.plays import after, always
from tests.model.shards.world import World

TENANT: Final = "t"
KIND: Final[NoticeKind] = "event.dead"
ENDED, STORED = "ended", "stored"
"""Tables of the model: events that have ended, and the events that are notices."""
BEGIN: Final = 2 * PERIOD
NOTED_FIRST = True
"""An owner takes the mark away after the end is noted."""
STORED_FIRST = True
"""A notice is closed after its event is stored."""


def source_of(fixed: FixedNotice, name: str) -> str:
    """Return the id of a notice's event. name: the process that stores it, of which the id must not depend."""
    return fixed.source(KIND)


def note(event: str) -> Any:
    """`CallbackWriter` of an owner: note the end of an event if it is owed, and take the mark away."""
    row = yield from get(ENDED, TENANT, event)
    if row is None or not row.props.get(OWED):
        return
    now = yield Now()
    for what in ("note", "done") if NOTED_FIRST else ("done", "note"):
        if what == "note":
            yield from record(TENANT, KIND, [Happening(event, "", now)])
        else:
            yield Write(ENDED, TENANT, (Merge(event, done(), row.etag),))
    yield Told((("noted", event),))


def tell(name: str) -> Any:
    """`Notices._tell`: store notices until there is nothing to tell. A lost answer ends it; the sweep goes on."""
    while True:
        now = yield Now()
        fixed = yield from fix(TENANT, KIND, now)
        if fixed is None:
            return
        if not isinstance(fixed, FixedNotice):
            yield Until(fixed)
            continue
        for what in ("store", "close") if STORED_FIRST else ("close", "store"):
            if what == "store":
                rk = source_of(fixed, name)
                props = {"seq": fixed.seq, "content": fixed.content.decode(), NOTICE: KIND}
                if (yield Write(STORED, TENANT, (Insert(rk, props),))) is LOST:
                    return
                yield Told((("told", (fixed.seq, rk)),))
            else:
                yield from close(TENANT, KIND, fixed.seq)


def owner(name: str, event: str) -> Any:
    """A process that owns the shard of an event that has ended."""
    yield from note(event)
    yield from tell(name)
    return ()


def sweep(now: int) -> Any:
    """The next owners of the shards, and the sweep that looks for open notices."""
    for row in (yield Load(ENDED, TENANT, "", "~")):
        yield from note(row.rk)
    for row in (yield Load(SWEEPS, PK_NOTICES, "", "~")):
        if row.props["open"]:
            yield from tell("sweep")
    return ()


def target(told: tuple[int, str]) -> Any:
    """The owner of a notice, which the channel refuses: what is owed to its end is noted, as that of any event."""
    row = yield from get(STORED, TENANT, told[1])
    assert row is not None
    if owed_after({"state": "firing", **row.props}, "dead", notices=True):
        now = yield Now()
        yield from record(TENANT, KIND, [Happening(told[1], "", now)])
        return (("told of a notice", told),)
    return ()


class NoticeWorld(World):
    """The store, the clock and the faults of the shard protocol's world, with the rules of notices."""

    def _started(self, state: State) -> State:
        for fact, told in state.acked:
            if fact == "told" and self.play.budget.fail and f"target {told[1]}" not in self.play.starts:
                self.play.starts[f"target {told[1]}"] = ("owner", lambda told=told: target(told), after(("told", told)))
        return super()._started(state)

    def _judge(self, cells: dict[Cell, Any], who: str, cell: Cell, before: dict[str, Any], after: dict[str, Any]) -> None:
        if cell[0] != SWEEPS or not before:
            return
        former, row = parse_notice(before), parse_notice(after)
        if former.sending and not row.sending:
            stored = [dict(found[1])["content"] for key, found in cells.items() if key[0] == STORED]
            if former.sending not in stored:
                raise Violation(f"N2: {who} closes notice {former.seq}, whose event is not stored")
        if former.sending and row.sending and former.sending != row.sending:
            raise Violation(f"N2: {who} changes what notice {former.seq} says")
        if row.seq > former.seq and former.sent_at and row.sent_at < former.sent_at + PERIOD:
            raise Violation(f"N4: {who} fixes notice {row.seq} {row.sent_at - former.sent_at} ms after the one before it")

    def _live(self, state: State) -> None:
        """Every rule is one of whole states: see `check`."""

    def check(self, state: State) -> None:
        cells = {cell: dict(props) for cell, _, props in state.store if props is not None}
        told = self._told(cells)
        if any(fact == "told of a notice" for fact, _ in state.acked):
            raise Violation("N5: the end of a notice is told")
        for cell, props in cells.items():
            if cell[0] == ENDED and not props[OWED] and not told[cell[2]]:
                raise Violation(f"N1: nothing is owed to {cell[2]}, and no notice tells of it")
        if state.budget == self.play.budget and (twice := [subject for subject, count in told.items() if count > 1]):
            raise Violation(f"N3: without a fault, {twice} is told more than once")
        notices = Counter(props["seq"] for cell, props in cells.items() if cell[0] == STORED)
        if twice_stored := [seq for seq, count in notices.items() if count > 1]:
            raise Violation(f"N6: notice {twice_stored[0]} is two events")
        super().check(state)

    @staticmethod
    def _told(cells: Mapping[Cell, dict[str, Any]]) -> Counter[str]:
        """Return the number of notices, stored or to come, that report each end."""
        texts = {props["content"] for cell, props in cells.items() if cell[0] == STORED}
        told = Counter[str]()
        row = cells.get((SWEEPS, PK_NOTICES, notice_key(TENANT, KIND)))
        if row is not None:
            found = parse_notice(row)
            texts |= {found.sending} - {""}
            told.update({subject: count for subject, (count, _, _) in found.subjects.items()})
        for text in texts:
            told.update({each["subject"]: each["count"] for each in orjson.loads(text)["subjects"]})
        return told

    def _settled(self, state: State) -> bool:
        if any(actor.kind != "user" for actor in state.actors):
            return False
        cells = {cell: dict(props) for cell, _, props in state.store if props is not None}
        found = cells.get((SWEEPS, PK_NOTICES, notice_key(TENANT, KIND)))
        row = parse_notice(found) if found is not None else NoticeRow()
        return not row.count and not row.sending and not any(props[OWED] for cell, props in cells.items() if cell[0] == ENDED)


def ended(*events: str) -> frozenset[Any]:
    """Events that have died, with what is owed to them: the mark that the transaction of the end has left."""
    rows = {event: {"state": "dead", **owed_after({"state": "firing"}, "dead", notices=True)} for event in events}
    return frozenset(((ENDED, TENANT, event), 1, tuple(sorted(props.items()))) for event, props in rows.items())


def play(name: str, budget: Budget, *events: str, times: tuple[int, ...] = (BEGIN,), second: bool = False) -> Play:
    """Return a play with an owner for each event. second: those after the first come when the first event's end is noted."""
    starts: Any = {f"o{event}": ("owner", lambda event=event: owner(f"o{event}", event), always) for event in events}
    for event in events[1:] if second else ():
        starts[f"o{event}"] = (*starts[f"o{event}"][:2], lambda acked: ("noted", events[0]) in acked)
    return Play(name, budget, starts, owner=lambda name, text: iter(()), sweep=sweep, times=times, stored=ended(*events), direct=False)


PLAYS: dict[str, Callable[[int], Play]] = {
    # A process crashes at each step, its request arrives or does not, and the sweep goes on.
    "crash": lambda level: play("crash", Budget(crash=1, lost=level, sweeps=1 + level, owners=0), "x"),
    # Answers are lost, and requests arrive at any later time.
    "lost": lambda level: play("lost", Budget(lost=1 + level, crash=level, sweeps=1, owners=0), "x"),
    # Two processes note and tell at once.
    "two": lambda level: play("two", Budget(lost=1, crash=level, sweeps=0, owners=0), "x", "y"),
    # An event ends when the first notice is fixed or stored, and a period passes.
    "period": lambda level: play("period", Budget(crash=level, sweeps=0, owners=0), "x", "y", times=(BEGIN, BEGIN + PERIOD), second=True),
    # The channel refuses the notice.
    "refused": lambda level: play("refused", Budget(fail=1, crash=level, sweeps=1, owners=0), "x", times=(BEGIN, BEGIN + PERIOD)),
}
