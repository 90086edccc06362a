"""Broken callbacks: each mutant leaves out one rule of the protocol."""

from __future__ import annotations

from typing import Any

from shared.engine.effects import Write
from shared.scheduler import rules
from shared.scheduler.facets import Callbacks
from shared.scheduler.properties.owed import done, owed_after
from shared.scheduler.protocol import express, owning
from shared.storage.names import EVENTS
from shared.storage.ports import Applied, Merge

from ..checking.mutants import Mutant, Patch
from . import actors


def noted_afterwards() -> list[Patch]:
    plain = owning.step

    def step(session: owning.OwnerSession, outcomes: Any, claims: Any, entries: Any = ()) -> Any:
        serving = yield from plain(session, outcomes, claims, entries)
        for rk, outcome in outcomes.items():
            mark = owed_after(session.rows[rk].props, outcome.state) if "owed" not in outcome.props else {}
            if serving and mark:
                answer = yield Write(EVENTS, session.shard, (Merge(rk, mark, session.rows[rk].etag),))
                if isinstance(answer, Applied):
                    session.rows[rk] = owning.changed(session.rows[rk], mark, answer.etags[0])
        return serving

    return [(Callbacks, "marks", lambda *_: {}), (owning, "step", step)]


def note_removed_before() -> list[Patch]:
    """The note is removed with the owner's next transaction, and only then the callback is stored."""

    def tell(session: owning.OwnerSession, owed: Any) -> Any:
        told = {rk: rules.RowOutcome(session.rows[rk].props["state"], done()) for rk in owed}
        if (yield from owning.step(session, told, [])):
            for rk in owed:
                yield from actors.store_callback(session.owner, session.rows[rk].props["id"])
        return {}

    return [(actors, "tell", tell)]


def finished_while_owed() -> list[Patch]:
    plain = rules.agenda

    def agenda(*given: Any, **more: Any) -> rules.Agenda:
        found = plain(*given, **more)
        return found._replace(owed=(), finished=True) if found.owed else found

    return [(rules, "agenda", agenda)]


def express_shard_done_while_owed() -> list[Patch]:
    def may_settle_all(session: owning.OwnerSession, outcomes: Any) -> bool:
        changes = owning.plan(session, outcomes, ())
        return all(changes.get(rk, row.props)["state"] in rules.FINAL for rk, row in session.rows.items())

    return [(express, "may_settle_all", may_settle_all)]


def id_of_the_owner() -> list[Patch]:
    return [(actors, "callback_id", lambda event, owner: f"k-{event}-{owner}")]


def stored_before_the_end() -> list[Patch]:
    """The callback is stored when the attempt has ended, before the owner has settled the event."""
    plain = owning.step

    def step(session: owning.OwnerSession, outcomes: Any, claims: Any, entries: Any = ()) -> Any:
        for rk, outcome in outcomes.items():
            if owed_after(session.rows[rk].props, outcome.state) and "owed" not in outcome.props:
                yield from actors.store_callback(session.owner, session.rows[rk].props["id"])
        return (yield from plain(session, outcomes, claims, entries))

    return [(owning, "step", step)]


CALLBACK_MUTANTS = [
    Mutant("a callback noted after the settlement", "callbacks", noted_afterwards, strands=True),
    Mutant("the note of a callback removed before the callback is stored", "callbacks", note_removed_before, strands=True),
    Mutant("a shard finished while a callback is owed", "callbacks", finished_while_owed, strands=True),
    Mutant("an express shard done while a callback is owed", "express callbacks", express_shard_done_while_owed, strands=True),
    Mutant("a callback under an id of its owner", "callbacks", id_of_the_owner),
    Mutant("a callback stored before the event's end", "callbacks of two owners", stored_before_the_end),
]
