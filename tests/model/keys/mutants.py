"""Broken turns. Each leaves out a sentence of docs/explain/ordering-keys.md; the checker must find the hole it opens."""

from __future__ import annotations

from typing import Any

from shared.engine.effects import Write
from shared.scheduler.key_lines import protocol
from shared.scheduler.key_lines.rules import TurnQuestion
from shared.scheduler.protocol import ingest
from shared.storage.names import LIMITS
from shared.storage.ports import ANY, Delete, Insert, Merge, Upsert
from tests.model.checking.checker import Report, explore
from tests.model.checking.mutants import Mutant, Patch, relay
from tests.model.checking.state import Now, Told
from tests.model.keys import plays

from .plays import PLAYS, KeyWorld


def line_without_etag() -> list[Patch]:
    plain = protocol.exchange

    def exchange(question: TurnQuestion, now: int) -> Any:
        def change(effect: Any) -> Any:
            if not isinstance(effect, Write) or effect.table != LIMITS:
                return effect
            ops: list[Any] = []
            for op in effect.ops:
                if isinstance(op, Insert) and op.rk == plays.LINE.name:
                    ops.append(Upsert(op.rk, op.props))
                elif isinstance(op, Merge | Delete):
                    ops.append(op._replace(etag=ANY))
                else:
                    ops.append(op)
            return Write(effect.table, effect.pk, tuple(ops))

        return relay(plain(question, now), change)

    return [(protocol, "exchange", exchange)]


def ticket_after_event() -> list[Patch]:
    def stored_with_ticket(opened: Any, tickets: Any) -> Any:
        added = yield from ingest.append(opened, [ingest.Entry(plays.event_row(0), plays.props_of("x"), 1)])
        if plays.event_row(0) in added.stored:
            now = yield Now()
            yield Told((("stored", "x"), *((("early", "x"),) if now < plays.DUE else ())))
        yield from protocol.line_up(plays.LINE, tickets)
        return False

    return [(plays, "stored_with_ticket", stored_with_ticket)]


def claimed_counts_as_stale() -> list[Patch]:
    def find_stale(*_: Any) -> Any:
        yield from ()
        return protocol.StaleTicket(ticket=True, turn=True)

    return [(protocol, "find_stale", find_stale)]


def nothing_is_stale() -> list[Patch]:
    def find_stale(*_: Any) -> Any:
        yield from ()
        return protocol.StaleTicket(ticket=False, turn=False)

    return [(protocol, "find_stale", find_stale)]


def failed_event_leaves() -> list[Patch]:
    plain = protocol.exchange

    def exchange(question: TurnQuestion, now: int) -> Any:
        return plain(question._replace(ended=dict.fromkeys(question.ended)), now)

    return [(protocol, "exchange", exchange)]


MUTANTS = [
    Mutant("a turn ended before its outcome is stored", "order", lambda: [(plays, "SETTLE_FIRST", False)]),
    Mutant("turns written without ETag", "concurrency", line_without_etag),
    Mutant("a ticket after its event", "late", ticket_after_event),
    Mutant("a turn of a claimed event taken away", "order crash", claimed_counts_as_stale),
    Mutant("turns of ended events left to their owners", "order crash", nothing_is_stale, strands=True),
    Mutant("a claimed event that lets another one pass", "late", lambda: [(plays, "CLAIMED_KEEPS", False)]),
    Mutant("a failed event that leaves its blocked line", "order", failed_event_leaves),
]


def hunt(mutant: Mutant, level: int = 0) -> Report:
    """Hunt the mutant: first for a broken safety property, then for a state from which no end can be reached."""
    with mutant.applied():
        for recover in (True,) if mutant.strands else (False, True):
            world = KeyWorld(PLAYS[mutant.play](level))
            world.recover = recover
            report = explore(world)
            if report.violation is not None:
                break
    return report
