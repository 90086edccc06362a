"""Plays of express delivery: who stores an event that is due now owns its shard from the first transaction, and delivers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shared.delivery.flow.rules import FREE, ClaimHold
from shared.scheduler import rules
from shared.scheduler.facets import FACETS
from shared.scheduler.keys import Address, event_row, shard_key
from shared.scheduler.properties.owed import callbacks_props
from shared.scheduler.protocol import express, ingest, owning

from ..checking.state import Budget, Now, Play, Start, Told, Until
from . import actors
from .actors import CHANNEL, DUE, POLICY, TENANT, creator, entry, rest, settle, writer
from .plays import CANCELS_X, EDITS_X, MOVES_X, Starts, always, play


def express_owner(name: str, *events: str, held: int = 0, named: bool = False, calls: bool = False) -> Any:
    """`firing.express`, one delivery at a time: the first event opens the shard, the others join it. What is not stored goes the usual way.

    named: the first event's id was chosen by the client. calls: the first event names callbacks. held: until then the channel takes no
    event, which is learned after the claim.
    """
    shard = shard_key(TENANT, f"{name}1")
    session = express.begin(shard, 0, name, FACETS)
    waiting, first = list(events), [entry(events[0], **(callbacks_props("c", "c") if calls else {}))]
    yield from ingest.file_shard(shard, 0, sent=True)
    if named:
        known = yield from ingest.register_id(TENANT, events[0], "hash", Address(shard, event_row(0)))
        first = [] if isinstance(known, ingest.KnownId) else first
    serving = yield from express.store_first(session, first)
    if not first or event_row(0) in session.rows:
        yield Told((("stored", waiting.pop(0)),))
    elif named:
        yield Told((yield from creator(f"{name}w", waiting.pop(0))))
    number = 0
    outcomes: dict[str, rules.RowOutcome] = {}
    informed = False
    while serving:
        for rk in owning.claimed(session, outcomes):
            now = yield Now()
            props = session.rows[rk].props
            if now < held:
                informed = True
                outcomes[rk] = rules.RowOutcome("scheduled", {"tries": int(props["tries"]) - 1})
            else:
                outcomes[rk] = settle(props, (yield Start(session.shard, rk, props["id"], int(props["due"]))), now)
        now = yield Now()
        holds = {CHANNEL: ClaimHold(held, blocked=True)} if informed and now < held else FREE
        rows = session.rows.open
        todo = rules.agenda(rows, session.epoch, now, lambda props: POLICY, holds, owed=session.owed)
        if waiting:
            number += 1
            serving = yield from owning.step(session, outcomes, todo.claim, [entry(waiting[0], number)])
            if event_row(number) in session.rows:
                yield Told((("stored", waiting.pop(0)),))
            outcomes = {}
        elif outcomes and express.may_settle_all(session, outcomes):
            done = yield from express.settle_all(session, outcomes)
            if done:
                yield from express.close_done(session, {})
            serving = done is None
            outcomes = {rk: each for rk, each in outcomes.items() if rk in session.rows and session.rows[rk].props["state"] == "firing"}
        elif outcomes or todo.settle or todo.claim:
            serving = yield from owning.step(session, {**todo.settle, **outcomes}, todo.claim)
            outcomes = {}
        elif todo.owed:
            outcomes = yield from actors.tell(session, todo.owed)
            serving = bool(outcomes)
        elif todo.finished:
            yield from owning.finish(session, {})
            serving = False
        elif todo.rest is not None:
            yield from rest(session, todo.rest, holds, now)
            serving = False
        else:
            yield Until(todo.look)
    if waiting:
        yield Told((yield from writer(f"{name}w", *waiting)))
    return ()


def _stores(*events: str, held: int = 0, named: bool = False) -> Starts:
    return {"a": ("owner", lambda: express_owner("a", *events, held=held, named=named), always)}


def _plays() -> dict[str, Callable[[int], Play]]:
    """The plays; see `plays.PLAYS`."""
    return {
        # The creator crashes at each step, and owners start from its index row at any time.
        "express": lambda level: play("express", Budget(lost=1, crash=1, suspect=level, fail=level, owners=2), _stores("x"), times=(DUE,)),
        # A second event joins the shard while the first is delivered or settled, and owners come.
        "express group": lambda level: play(
            "express group", Budget(lost=1, crash=level, suspect=1, owners=1 + level), _stores("x", "y"), times=(DUE,)
        ),
        # The channel takes no event: the claim is given back, and the event may be cancelled or moved, whether its creator lives or not.
        "express cancel": lambda level: play(
            "express cancel",
            Budget(lost=1, crash=level, suspect=1, owners=1 + level),
            {**_stores("x", held=80_000), **CANCELS_X},
            due={"x": frozenset({DUE})},
            times=(DUE, 80_000),
            held=80_000,
        ),
        "express patch": lambda level: play(
            "express patch",
            Budget(lost=level, crash=1, owners=1 + level),
            {**_stores("x", held=80_000), **MOVES_X},
            due={"x": frozenset({DUE, 80_000})},
            times=(DUE, 80_000),
            held=80_000,
        ),
        "express edit": lambda level: play(
            "express edit",
            Budget(lost=level, crash=1, owners=1 + level),
            {**_stores("x", held=80_000), **EDITS_X},
            times=(DUE, 80_000),
            held=80_000,
        ),
        # One id: an express creator, and one that goes the usual way.
        "express creators": lambda level: play(
            "express creators",
            Budget(lost=1, crash=level, owners=level),
            {**_stores("x", named=True), "b": ("writer", lambda: creator("b", "x"), always)},
            times=(DUE,),
        ),
        # The sweep as the safety net, with its messages and a retry.
        "express sweep": lambda level: play(
            "express sweep",
            Budget(lost=level, crash=1, fail=1, owners=2, sweeps=2),
            _stores("x"),
            times=(DUE, 80_000),
            direct=False,
        ),
    }


EXPRESS_PLAYS = _plays()
