"""The plays of a mirrored pair. The actors only string production generators together, in the order in which the services do.

`sweeps` of a budget is how often the first account may be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from shared.engine.effects import Get, Write
from shared.scheduler import rules
from shared.scheduler.facets import FACETS
from shared.scheduler.facets.finding import STATE_ROWS, key_of, partition_of
from shared.scheduler.keys import GATE, Address, event_row, index_key, index_partition, minute_text, shard_key
from shared.scheduler.protocol import changing, dispatch, ingest, mirroring, owning
from shared.scheduler.protocol.mirroring import SECOND, Fence, Way, parse_fence
from shared.scheduler.shard.gate import Counts, Gate, HeldGate
from shared.storage.names import EVENTS, LEDGER, SHARDS, SWEEPS
from shared.storage.ports import Replace

from ..shards import actors
from ..shards.actors import DUE, POLICY, TENANT, entry, settle
from ..shards.plays import Starts, after, always
from ..shards.world import Budget, Cell, Now, Play, Start, Until
from .pair import FENCE, SERVES, BackWorld, PairWorld

WAY = Way("", SECOND, SECOND, "first", 0)
WAY_AGAIN = WAY._replace(epoch=3)
"""After a failover and the way back."""
X = Address(shard_key(TENANT, "ma1"), event_row(0))


def owner(name: str, text: str, way: Way = WAY) -> Any:
    """An owner on the first: copied when taken, which is also its look at the fence; when finished; and in between as it comes."""
    message = dispatch.parse_message(text)
    shard = message.shard
    session = yield from owning.take(shard, message.index, name, FACETS)
    if session == "gone":
        return ()
    if session == "done":
        yield from owning.tidy(shard, message.index, lambda rows: {}, FACETS, lambda found: mirroring.finish_copy(shard, way, found))
        return ()
    if isinstance(session, owning.ShardBusy):
        return (("again", text),)
    if not (yield from mirroring.mirror(shard, way)) or not (yield from owning.load(session)):
        return ()
    outcomes: dict[str, rules.RowOutcome] = {}
    while True:
        now = yield Now()
        todo = rules.agenda(session.rows.open, session.epoch, now, lambda props: POLICY)
        if outcomes or todo.settle or todo.claim:
            if not (yield from owning.step(session, {**todo.settle, **outcomes}, todo.claim)):
                return ()
            outcomes = {}
            for rk in owning.claimed(session, ()):
                props = session.rows[rk].props
                success = yield Start(session.shard, rk, props["id"], int(props["due"]))
                outcomes[rk] = settle(props, success, now)
            continue
        if todo.finished:
            yield from owning.finish(session, {}, mirroring.finish_copy(shard, way, {}))
            return ()
        if todo.rest is not None:
            yield from owning.rest(session, todo.rest, retries_only=True, sent=False)
            yield from mirroring.mirror(shard, way)
            return ()
        yield Until(todo.look)


def follower(name: str, text: str) -> Any:
    """An owner on the second."""
    return (yield from mirroring.on_side(SECOND, actors.owner(name, text)))


def writer(name: str, event: str) -> Any:
    """A server id: acknowledged when the copy has it."""
    opened = ingest.OpenShard(shard_key(TENANT, f"m{name}1"), f"{name}1", 0, FACETS)
    yield from ingest.file_shard(opened.shard, 0, sent=False)
    yield from mirroring.on_side(SECOND, ingest.file_shard(opened.shard, 0, sent=False))
    stored = yield from store(opened, event)
    return (("stored", event),) if stored else ()


def store(opened: ingest.OpenShard, event: str) -> Any:
    found = entry(event)
    stored = (yield from ingest.append(opened, [found])).stored
    if not stored:
        return False
    copy = None
    if opened.held is not None:
        copy = yield from mirroring.append_copy(opened.shard, WAY, opened.held, None, [found], stored)
    return copy is not None or (yield from mirroring.mirror(opened.shard, WAY, frozenset(stored)))


def creator(name: str, event: str) -> Any:
    """A client's id: its row is on both sides before the event is anywhere."""
    for generation in range(1, 3):
        opened = ingest.OpenShard(shard_key(TENANT, f"m{name}{generation}"), f"{name}{generation}", 0, FACETS)
        yield from ingest.file_shard(opened.shard, 0, sent=False)
        yield from mirroring.on_side(SECOND, ingest.file_shard(opened.shard, 0, sent=False))
        here = Address(opened.shard, event_row(0))
        known = yield from ingest.register_id(TENANT, event, "hash", here)
        if not (yield from mirroring.mirror_id(TENANT, event, WAY)):
            return ()
        if isinstance(known, ingest.KnownId):
            copied = yield from mirroring.mirror_event(Address(known.row.pk, known.row.rk), WAY)
            return (("stored", event),) if copied else ()
        if (yield from store(opened, event)):
            return (("stored", event),)
    return ()


def creator_there(name: str, event: str) -> Any:
    """The client tries again, on the second."""
    return (yield from mirroring.on_side(SECOND, actors.creator(name, event)))


def canceller(event: str, address: Address) -> Any:
    answer = yield from changing.cancel(address, 0, "c")
    if isinstance(answer, changing.Done) and (yield from mirroring.mirror_event(address, WAY)):
        return (("cancelled", event),)
    return ()


def canceller_there(event: str, address: Address) -> Any:
    return (yield from mirroring.on_side(SECOND, actors.canceller(event, address)))


def mover(event: str, address: Address, due: int, nonce: str) -> Any:
    answer = yield from changing.move(address, due, {}, nonce)
    if isinstance(answer, changing.Done) and (yield from mirroring.mirror_event(address, WAY)):
        return (("moved", (event, due)),)
    return ()


def copier(shard: str) -> Any:
    """An owner's copy in passing: what it reads may be old by the time it writes."""
    yield from mirroring.mirror(shard, WAY)
    return ()


def redriver(shard: str, rk: str) -> Any:
    row = yield Get(EVENTS, shard, rk)
    if row is None or row.props["state"] != "dead" or row.props.get("target"):
        return ()
    if (yield from changing.redrive(shard, {rk: row}, DUE, "r", lambda place: mirroring.mirror(place, WAY))) is None:
        return ()
    if (yield from mirroring.mirror_event(Address(shard, rk), WAY)):
        return (("redriven", rk),)
    return ()


def redriver_there(shard: str, rk: str) -> Any:
    served = Way("", "", "", "second", 1)
    return (yield from mirroring.on_side(SECOND, actors.redriver(shard, (rk,), "s", lambda place: mirroring.still_serves(served))))


# -- what is stored when a play begins

type Store = frozenset[tuple[Cell, int, tuple[tuple[str, Any], ...] | None]]


def cell(table: str, pk: str, rk: str, props: dict[str, Any], version: int = 1) -> tuple[Cell, int, tuple[tuple[str, Any], ...]]:
    return (table, pk, rk), version, tuple(sorted(props.items()))


def both(state: str = "scheduled", gate: str = "open", **more: Any) -> Store:
    """One event, x, on both sides and in step."""
    index = index_key(X.shard, 0)
    opened = Gate("open", "a1", index=index, bucket=minute_text(0), counts=rules.tally([state]))
    opened = replace(opened, state=gate)  # type: ignore[arg-type]
    row = {"id": "x", "state": state, "due": DUE, **more}
    filed = {"state": "pending", "wake": 0, "bucket": minute_text(0), "tenant": TENANT}
    cells = [
        cell(EVENTS, X.shard, GATE, opened.props()),
        cell(EVENTS, X.shard, X.row, row),
        cell(SECOND + EVENTS, X.shard, GATE, {**opened.props(), "origin": "1"}),
        cell(SECOND + EVENTS, X.shard, X.row, {**row, "origin": "1"}),
    ]
    if state == "dead":
        found = partition_of(STATE_ROWS, X.shard), key_of("dead", X.shard)
        cells += [cell(prefix + SWEEPS, *found, {"bucket": opened.bucket}) for prefix in ("", SECOND)]
    if gate != "done":
        cells += [cell(prefix + SHARDS, index_partition(X.shard), index, filed) for prefix in ("", SECOND)]
    else:
        counts = dict(zip(Counts._fields, opened.counts, strict=True))
        ended = f"{opened.bucket}:{X.shard}"
        cells += [cell(prefix + LEDGER, TENANT, ended, {"shard": X.shard, **counts}) for prefix in ("", SECOND)]
    return frozenset(cells)


STORED_X: Starts = {"a": ("user", lambda: _ready("x"), always)}


def _ready(event: str) -> Any:
    """The event was acknowledged before the play began."""
    yield Now()
    return (("stored", event),)


BACK = Way(SECOND, "", SECOND, "first", 2, prune=True)


def ahead(state: str = "scheduled") -> Store:
    """The second has served x, which ended so far as `state`; the first still has it as it was, and an event that was not acknowledged."""
    cells = {found[0]: found for found in both()}
    row = {"id": "x", "state": state, "due": DUE, "origin": "1", "by": "c"}
    copy = cell(SECOND + EVENTS, X.shard, X.row, row, 2)
    half = cell(EVENTS, X.shard, event_row(5), {"id": "z", "state": "scheduled", "due": DUE})
    fence = cell(FENCE[0], FENCE[1], FENCE[2], Fence("first", 2, syncing=True).props(), 3)
    return frozenset({**cells, copy[0]: copy, half[0]: half, fence[0]: fence}.values())


def unfiled() -> Store:
    """Like `ahead`, but x is at the place of a move that was cut off on the first, which made the place, and has no index row of it."""
    mine = cell(EVENTS, X.shard, X.row, {"id": "x", "state": "scheduled", "due": DUE})
    cells = {found[0]: found for found in ahead() if found[0][0] != SHARDS and found[0][2] != event_row(5)}
    return frozenset({**cells, mine[0]: mine}.values())


def restorer(shard: str) -> Any:
    """The job of the way back; the fence is changed last, on the ETag under which it began."""
    while True:
        fence = yield Get(*FENCE)
        if not parse_fence(fence).syncing:
            return ()
        if (yield from mirroring.restore(shard, BACK)):
            gate = yield Get(SECOND + EVENTS, shard, GATE)
            if gate is not None and gate.props["state"] == "done":
                yield from mirroring.finish_copy(shard, BACK, {})
            yield Write(FENCE[0], FENCE[1], (Replace(FENCE[2], Fence("first", 3).props(), fence.etag),))


def sleeper(event: str) -> Any:
    """A writer of the first that knows nothing of what has happened since, and carries on where it was."""
    opened = Gate("open", "a1", index=index_key(X.shard, 0), bucket=minute_text(0), counts=rules.tally(["scheduled"]))
    mine = ingest.OpenShard(X.shard, "a1", 0, FACETS, next_number=1, held=HeldGate(opened, "1"))
    found = entry(event, 1)
    stored = (yield from ingest.append(mine, [found])).stored
    if not stored:
        return ()
    copy = None
    if mine.held is not None:
        copy = yield from mirroring.append_copy(X.shard, WAY, mine.held, "1", [found], stored)
    if copy is not None or (yield from mirroring.mirror(X.shard, WAY, frozenset(stored))):
        return (("stored", event),)
    return ()


def _cancelled(event: str) -> Any:
    """The cancel was acknowledged on the second, before the play began."""
    yield Now()
    return (("cancelled", event),)


def pair_play(name: str, budget: Budget, starts: Starts, **options: Any) -> Play:
    given = {"times": (DUE,), "due": {"x": frozenset({DUE})}, **options}
    serves = partial(owner, way=WAY_AGAIN) if "failback" in name else owner
    return Play(name, budget, starts, serves, actors.sweep, **given)


def world(play: Play) -> PairWorld:
    """The model of a play."""
    back = "failback" in play.name
    found = BackWorld(play) if back else PairWorld(play)
    found.follows = follower
    return found


there = after(SERVES)


def there_and(*facts: tuple[str, Any]) -> Callable[[Any], bool]:
    return lambda acked: SERVES in acked and all(fact in acked for fact in facts)


def _pair_plays() -> dict[str, Callable[[int], Play]]:
    """Level 0 for the quick runs, 1 for `make model`."""
    moves = {**STORED_X, "m": ("writer", lambda: mover("x", X, 80_000, "m"), always)}
    copies: Starts = {"k": ("writer", lambda: copier(X.shard), always)}
    cancels: Starts = {"c": ("user", lambda: canceller("x", X), always)}
    later = {"due": {"x": frozenset({DUE, 80_000})}, "times": (DUE, 80_000)}
    return {
        # A writer's event is acknowledged, an owner serves it, the first is lost at any moment, the second carries on.
        "pair: ingest": lambda level: pair_play(
            "pair: ingest",
            Budget(lost=1, crash=level, owners=1, sweeps=1),
            {"a": ("writer", lambda: writer("a", "x"), always)},
        ),
        # An owner dies, or one is taken for dead and two copy at once; the first is lost.
        "pair: owners": lambda level: pair_play(
            "pair: owners",
            Budget(lost=1, crash=1, suspect=level, owners=1 + level, sweeps=1),
            STORED_X,
            stored=both(),
        ),
        # A cancel on the first against an owner's copy in passing; the first is lost.
        "pair: cancel": lambda level: pair_play(
            "pair: cancel", Budget(lost=1, owners=level, sweeps=1), {**STORED_X, **cancels, **copies}, stored=both()
        ),
        "pair: cancel and owner": lambda level: pair_play(
            "pair: cancel and owner", Budget(lost=level, owners=1, sweeps=1), {**STORED_X, **cancels}, stored=both()
        ),
        # A cancel on the second, while those of the first still write.
        "pair: cancel there": lambda level: pair_play(
            "pair: cancel there",
            Budget(lost=level, owners=1, sweeps=1),
            {**STORED_X, "c": ("user", lambda: canceller_there("x", X), there), **copies},
            stored=both(),
        ),
        "pair: move": lambda level: pair_play(
            "pair: move", Budget(lost=level, crash=1, owners=0, sweeps=1), {**moves, **copies}, stored=both(), **later
        ),
        # The owner of the new place copies it before anybody has copied the old one.
        "pair: move and owner": lambda level: pair_play(
            "pair: move and owner", Budget(crash=level, owners=1, sweeps=level), moves, stored=both(), **later
        ),
        # A move that was cut off, then a cancel of the event where it lives now.
        "pair: move and cancel": lambda level: pair_play(
            "pair: move and cancel", Budget(crash=1, lost=level, owners=0, sweeps=level), {**moves, **cancels}, stored=both(), **later
        ),
        # The client of an unacknowledged creation tries again on the second.
        "pair: ids": lambda level: pair_play(
            "pair: ids",
            Budget(lost=1, owners=level, sweeps=1),
            {"a": ("writer", lambda: creator("a", "x"), always), "b": ("writer", lambda: creator_there("b", "x"), there)},
        ),
        "pair: redrive": lambda level: pair_play(
            "pair: redrive",
            Budget(lost=level, crash=1 - level, owners=level, sweeps=1),
            {
                "r": ("writer", lambda: redriver(X.shard, X.row), always),
                "s": ("writer", lambda: redriver_there(X.shard, X.row), there),
            },
            stored=both("dead", "done"),
            due={"x": frozenset({0})},
        ),
        # The second has served, and nobody serves now: the first is brought up to date, while a writer that has slept through all of it
        # carries on there.
        "pair: failback": lambda level: pair_play(
            "pair: failback",
            Budget(lost=level, owners=1, sweeps=0),
            {
                **STORED_X,
                "r": ("writer", lambda: restorer(X.shard), always),
                "w": ("writer", lambda: sleeper("y"), always),
            },
            stored=ahead(),
            due={"x": frozenset({DUE}), "y": frozenset({DUE})},
        ),
        # A place that the first has made, and not filed: a crash in the middle of a move.
        "pair: failback of a place": lambda level: pair_play(
            "pair: failback of a place",
            Budget(lost=1, owners=1 + level, sweeps=0),
            {**STORED_X, "r": ("writer", lambda: restorer(X.shard), always)},
            stored=unfiled(),
            due={"x": frozenset({DUE})},
        ),
        # With an event that was cancelled on the second; two instances do it at once.
        "pair: failback of a cancel": lambda level: pair_play(
            "pair: failback of a cancel",
            Budget(lost=level, owners=1, sweeps=0),
            {
                **STORED_X,
                "c": ("user", lambda: _cancelled("x"), always),
                "r": ("writer", lambda: restorer(X.shard), always),
                "s": ("writer", lambda: restorer(X.shard), always),
            },
            stored=ahead("cancelled"),
            due={"x": frozenset({DUE})},
        ),
    }


PAIR_PLAYS = _pair_plays()
