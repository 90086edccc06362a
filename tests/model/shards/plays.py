"""The plays: who acts, on what, and what may go wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shared.scheduler.facets.finding import STATE_ROWS, key_of, partition_of
from shared.scheduler.keys import Address, event_row, id_partition, index_key, index_partition, shard_key
from shared.scheduler.protocol import changing, dispatch
from shared.scheduler.shard import gate
from shared.storage.names import EVENTS, IDS, LEDGER, SHARDS, SWEEPS

from .actors import (
    CHANNEL,
    DUE,
    TENANT,
    canceller,
    creator,
    editor,
    joiner,
    label_reader,
    labelled_writer,
    late_writer,
    mixed_owner,
    mover,
    owner,
    poison,
    reader,
    redriver,
    sweep,
    withdrawer,
    writer,
)
from .world import Budget, Play

LATE = 3_600_000


def always(acked: Any) -> bool:
    return True


def after(*facts: tuple[str, Any]) -> Callable[[Any], bool]:
    return lambda acked: all(fact in acked for fact in facts)


def play(name: str, budget: Budget, starts: dict[str, tuple[str, Callable[[], Any], Callable[[Any], bool]]], **options: Any) -> Play:
    options.setdefault("sweep", sweep)
    options.setdefault("owner", owner)
    options.setdefault("due", {"x": frozenset({DUE}), "y": frozenset({DUE})})
    return Play(name, budget, starts, **options)


A1 = Address(shard_key(TENANT, "a1"), event_row(0))
MOVED = changing.target_shard(A1.shard, f"move:{A1.row}", 0)
"""The shard to which the event at `A1` moves."""
B1 = Address(shard_key(TENANT, "b1"), event_row(0))


def _dead_shard() -> frozenset[Any]:
    """A finished shard that holds one dead event."""
    gate = {"state": "done", "holder": "o0", "epoch": 1, "bytes": 1, "index": "197001010000:t:a1", "bucket": "197001010000"}
    gate |= {"accepted": 1, "delivered": 0, "retrying": 0, "dead": 1, "lapsed": 0, "cancelled": 0, "moved": 0}
    row = {"id": "x", "state": "dead", "due": 0, "tries": 2}
    return frozenset(
        {
            ((EVENTS, A1.shard, "gate"), 1, tuple(sorted(gate.items()))),
            ((EVENTS, A1.shard, A1.row), 1, tuple(sorted(row.items()))),
            ((LEDGER, TENANT, f"197001010000:{A1.shard}"), 1, (("dead", 1),)),
            ((SWEEPS, partition_of(STATE_ROWS, A1.shard), key_of("dead", A1.shard)), 1, (("bucket", "197001010000"),)),
        }
    )


def _ended_event() -> frozenset[Any]:
    """A finished shard whose event, with an id of a client, was cancelled."""
    here = Address(shard_key(TENANT, "e1"), event_row(0))
    held = gate.Gate("done", "o0", 1, 1, index_key(here.shard, 0), "197001010000", gate.Counts(1, cancelled=1))
    row = {"id": "x", "state": "cancelled", "due": 0, "channel": CHANNEL}
    return frozenset(
        {
            ((EVENTS, here.shard, "gate"), 1, tuple(sorted(held.props().items()))),
            ((EVENTS, here.shard, here.row), 1, tuple(sorted(row.items()))),
            ((LEDGER, TENANT, f"197001010000:{here.shard}"), 1, (("dead", 0),)),
            ((IDS, id_partition(TENANT, "x"), "x"), 1, (("at", here.text), ("hash", "former"))),
        }
    )


def _retrying_shard() -> frozenset[Any]:
    """A resting shard with one event that has failed twice, and dies if it fails again."""
    index = {"state": "resting", "wake": 0, "bucket": "197001010000", "tenant": TENANT}
    held = gate.Gate("resting", "o0", 1, 1, index_key(A1.shard, 0), "197001010000", gate.Counts(1, retrying=1))
    row = {"id": "x", "state": "retrying", "due": 0, "tries": 2, "next": DUE, "epoch": 1, "channel": CHANNEL}
    return frozenset(
        {
            ((EVENTS, A1.shard, "gate"), 1, tuple(sorted(held.props().items()))),
            ((EVENTS, A1.shard, A1.row), 1, tuple(sorted(row.items()))),
            ((SHARDS, index_partition(A1.shard), index_key(A1.shard, 0)), 1, tuple(sorted(index.items()))),
            ((SWEEPS, partition_of(STATE_ROWS, A1.shard), key_of("retrying", A1.shard)), 1, (("bucket", "197001010000"),)),
        }
    )


def swap() -> tuple[dict[str, str], ...]:
    """The two creators of one id are interchangeable, with everything named after them."""
    mapping: dict[str, str] = {"a": "b", "b": "a"}
    for generation in (1, 2, 3):
        for one, other in (("a", "b"), ("b", "a")):
            mine, yours = shard_key(TENANT, f"{one}{generation}"), shard_key(TENANT, f"{other}{generation}")
            mapping[f"{one}{generation}"] = f"{other}{generation}"
            mapping[mine] = yours
            mapping[f"{mine}/{event_row(0)}"] = f"{yours}/{event_row(0)}"
            mapping[f"197001010000:t:{one}{generation}"] = f"197001010000:t:{other}{generation}"
            mapping[f"197001010000:{mine}"] = f"197001010000:{yours}"
            mapping[f"~197001010000:{mine}"] = f"~197001010000:{yours}"
            text = dispatch.ShardMessage(mine, f"197001010000:t:{one}{generation}").text()
            mapping[text] = dispatch.ShardMessage(yours, f"197001010000:t:{other}{generation}").text()
    return (mapping,)


type Starts = dict[str, tuple[str, Callable[[], Any], Callable[[Any], bool]]]
WRITES_X: Starts = {"a": ("writer", lambda: writer("a", "x"), always)}
CANCELS_X: Starts = {"c": ("user", lambda: canceller("x", A1), after(("stored", "x")))}
MOVES_X: Starts = {"m": ("writer", lambda: mover("x", A1, 80_000, "m"), after(("stored", "x")))}
JOINS_X: Starts = {"j": ("writer", lambda: joiner("x", A1, 80_000, "j"), after(("stored", "x")))}
EDITS_X: Starts = {"e": ("writer", lambda: editor("x", A1, 2, "e"), after(("stored", "x")))}
CREATORS: Starts = {"a": ("writer", lambda: creator("a", "x"), always), "b": ("writer", lambda: creator("b", "x"), always)}


def _reuser(name: str) -> Any:
    return creator(name, "x", lambda *args: changing.reuse_id(*args))


REUSERS: Starts = {"a": ("writer", lambda: _reuser("a"), always), "b": ("writer", lambda: _reuser("b"), always)}
REDRIVERS: Starts = {
    "r": ("writer", lambda: redriver(A1.shard, (A1.row,), "r"), always),
    "s": ("writer", lambda: redriver(A1.shard, (A1.row,), "s"), always),
}


def _plays() -> dict[str, Callable[[int], Play]]:
    """Each play takes a level: 0 for the quick runs, 1 for the exhaustive ones."""
    return {
        # A writer fills a shard batch by batch while an owner comes, with every answer lost once.
        "ingest": lambda level: play(
            "ingest",
            Budget(lost=2, crash=1, owners=1 + level, double=level),
            {"a": ("writer", lambda: writer("a", "x", "y"), always)},
            times=(DUE,),
        ),
        "cancel": lambda level: play(
            "cancel",
            Budget(lost=1, crash=level, suspect=1, fail=1, owners=2),
            {**WRITES_X, **CANCELS_X},
            times=(DUE,),
        ),
        "owners": lambda level: play("owners", Budget(lost=1, crash=1, suspect=1, fail=level, owners=2), WRITES_X, times=(DUE,)),
        "two events": lambda level: play(
            "two events",
            Budget(lost=level, crash=level, suspect=1, fail=1, owners=2),
            {"a": ("writer", lambda: writer("a", "x", "y"), always), **CANCELS_X},
            times=(DUE,),
        ),
        # Processes end, and later ones of the same machine take their gates at once. Every second owner is of a release without identities.
        "dead process": lambda level: play(
            "dead process",
            Budget(lost=level, crash=1 + level, owners=3),
            WRITES_X,
            owner=mixed_owner,
            owners_keep=True,
            times=(DUE,),
        ),
        # The sweep and its messages, marks and rests, within one minute and across two.
        "dispatch": lambda level: play(
            "dispatch",
            Budget(lost=1, crash=level, fail=1, owners=2, sweeps=2),
            WRITES_X,
            times=(DUE, 80_000),
            direct=False,
        ),
        # Messages that get lost and doubled, and two sweeps at once.
        "messages": lambda level: play(
            "messages",
            Budget(double=1, drop=1, fail=level, crash=level, owners=2, sweeps=2),
            WRITES_X,
            times=(DUE, 80_000),
            direct=False,
            sweeps_at_once=2,
        ),
        # After an outage: sweeps that come hours late hand out what they find, two of them at once, and again what was lost.
        "backlog": lambda level: play(
            "backlog",
            Budget(lost=1, drop=level, fail=level, owners=1 + level, sweeps=2),
            WRITES_X,
            times=(LATE,),
            direct=False,
            sweeps_at_once=2,
        ),
        # A message fails for good, and its handler leaves the shard to the index.
        "poison": lambda level: play(
            "poison",
            Budget(drop=1, fail=level, crash=level, owners=1 + level, sweeps=2),
            {**WRITES_X, "p": ("poison", lambda: poison(A1.shard), after(("stored", "x")))},
            times=(LATE, 2 * LATE),
            direct=False,
        ),
        # Nothing goes wrong and repair is switched off: the sweep alone must serve every wake-up.
        "punctual": lambda level: play(
            "punctual",
            Budget(fail=1, owners=2, sweeps=2 + level),
            WRITES_X,
            times=(DUE, 80_000),
            direct=False,
            sweep=lambda now: sweep(now, repair=False),
        ),
        "retry": lambda level: play(
            "retry",
            Budget(lost=1, crash=1, fail=1, suspect=level, owners=2),
            {**WRITES_X, "c": ("user", lambda: canceller("x", A1), after(("started", "x")))},
            times=(DUE, 80_000),
        ),
        # The channel is paused when the event is claimed: it is given back, may be cancelled, and goes out when the pause is over.
        "held": lambda level: play(
            "held",
            Budget(lost=1, crash=level, suspect=level, owners=2),
            {**WRITES_X, **CANCELS_X},
            owner=lambda name, text: owner(name, text, held=80_000),
            due={"x": frozenset({80_000})},
            times=(DUE, 80_000),
            held=80_000,
        ),
        # The first delivery after the pause fails: the event waits for its next attempt, and is held no more.
        "held and failed": lambda level: play(
            "held and failed",
            Budget(lost=level, crash=1, suspect=1, fail=1, owners=2),
            {**WRITES_X, **({"h": ("user", lambda: reader(A1.shard, "held"), after(("stored", "x")))} if level else {})},
            owner=lambda name, text: owner(name, text, held=80_000),
            due={"x": frozenset({80_000})},
            times=(DUE, 80_000),
            held=80_000,
        ),
        "creators": lambda level: play("creators", Budget(lost=1, owners=level), CREATORS, symmetry=swap(), times=(DUE,)),
        "creator crashes": lambda level: play(
            "creator crashes", Budget(crash=1, owners=1 + level), CREATORS, symmetry=swap(), times=(DUE,)
        ),
        # An event comes out of the ingest queue while it is cancelled.
        "withdraw": lambda level: play(
            "withdraw",
            Budget(lost=1, owners=level),
            {"a": ("writer", lambda: creator("a", "x"), always), "b": ("writer", lambda: withdrawer("b", "x"), always)},
            times=(DUE,),
        ),
        "move": lambda level: play(
            "move",
            Budget(lost=1, crash=1, owners=1 + level),
            {**WRITES_X, **MOVES_X},
            due={"x": frozenset({DUE, 80_000})},
            times=(DUE, 80_000),
        ),
        "move and cancel": lambda level: play(
            "move and cancel",
            Budget(lost=level, crash=1, owners=1),
            {**WRITES_X, **MOVES_X, "c": ("user", lambda: canceller("x", A1), after(("began", "m")))},
            due={"x": frozenset({DUE, 80_000})},
            times=(DUE, 80_000),
        ),
        # A move into a shard that the mover fills, while another process moves the event elsewhere, or an owner meets it half-way.
        "join": lambda level: play(
            "join",
            Budget(lost=1, crash=1, owners=1 + level),
            {**WRITES_X, **JOINS_X},
            due={"x": frozenset({DUE, 80_000})},
            times=(DUE, 80_000),
        ),
        "join and cancel": lambda level: play(
            "join and cancel",
            Budget(lost=level, crash=1, owners=1),
            {**WRITES_X, **JOINS_X, "c": ("user", lambda: canceller("x", A1), after(("began", "j")))},
            due={"x": frozenset({DUE, 80_000})},
            times=(DUE, 80_000),
        ),
        "join and move": lambda level: play(
            "join and move",
            Budget(lost=level, crash=1, owners=1),
            {**WRITES_X, **JOINS_X, "m": ("writer", lambda: mover("x", A1, 80_000, "m"), after(("began", "j")))},
            due={"x": frozenset({DUE, 80_000})},
            times=(DUE, 80_000),
        ),
        # A change of the payload, which makes the event larger and moves it, while another call gives it another due time.
        "move and edit": lambda level: play(
            "move and edit",
            Budget(lost=level, crash=level, owners=1),
            {**WRITES_X, **MOVES_X, **EDITS_X},
            due={"x": frozenset({DUE, 80_000})},
            times=(DUE, 80_000),
        ),
        "redrive": lambda level: play(
            "redrive",
            Budget(lost=1, crash=1, owners=1 + level),
            REDRIVERS,
            stored=_dead_shard(),
            times=(DUE,),
            due={"x": frozenset({0})},
        ),
        # Two events with `collapse` come at once for an id whose event has ended.
        "reuse": lambda level: play(
            "reuse", Budget(lost=1 + level, crash=level, owners=level), REUSERS, stored=_ended_event(), times=(DUE,), symmetry=swap()
        ),
        # An event that dies is redriven, while the lists of dead and of retrying events are read; and it is cancelled before.
        "lists": lambda level: play(
            "lists",
            Budget(lost=level, crash=1, fail=1, owners=2),
            {
                "l": ("user", lambda: reader(A1.shard, "dead"), always),
                "r": ("user", lambda: redriver(A1.shard, (A1.row,), "r"), after(("started", "x"))),
                **({"k": ("user", lambda: reader(A1.shard, "retrying"), after(("started", "x")))} if level else {}),
            },
            stored=_retrying_shard(),
            times=(DUE,),
            due={"x": frozenset({0})},
        ),
        # An event comes as dead, while the list of dead events is read.
        "lists of late events": lambda level: play(
            "lists of late events",
            Budget(lost=1, crash=1, owners=1 + level),
            {
                "a": ("writer", lambda: late_writer("a", "x"), always),
                "l": ("user", lambda: reader(A1.shard, "dead"), always),
            },
            times=(DUE,),
            due={"x": frozenset()},
        ),
        # An event with a searchable label is stored, moved and delivered while lists by the label are read.
        "labels": lambda level: play(
            "labels",
            Budget(lost=level, crash=1, owners=1 + level),
            {
                "a": ("writer", lambda: labelled_writer("a", "x"), always),
                "l": ("user", lambda: label_reader(A1.shard), always),
                # With lost answers, the event stays where it is: both together take too long.
                **({} if level else {**MOVES_X, "k": ("user", lambda: label_reader(MOVED), after(("began", "m")))}),
            },
            due={"x": frozenset({DUE, 80_000})},
            times=(DUE, 80_000),
        ),
        "lists and cancel": lambda level: play(
            "lists and cancel",
            Budget(lost=1, crash=level, fail=1, owners=1 + level),
            {
                "k": ("user", lambda: reader(A1.shard, "retrying"), always),
                "c": ("user", lambda: canceller("x", A1), always),
            },
            stored=_retrying_shard(),
            times=(DUE,),
            due={"x": frozenset({0})},
        ),
    }


PLAYS = _plays()
