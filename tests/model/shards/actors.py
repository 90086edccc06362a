"""The actors of the plays: they only string production generators together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shared.delivery.channels.model import LongWork
from shared.delivery.flow.rules import FREE, ClaimHold
from shared.engine.effects import Get
from shared.scheduler import facets, rules
from shared.scheduler.facets import finding
from shared.scheduler.facets.finding import LABEL_ROWS, STATE_ROWS, held_numbers, key_of, partition_of
from shared.scheduler.facets.long_work import HeldToken, accepted, silence
from shared.scheduler.keys import Address, event_row, index_key, shard_key
from shared.scheduler.properties.owed import CALLBACK_OF, done
from shared.scheduler.protocol import changing, dispatch, holding, ingest, moving, owning
from shared.scheduler.shard import gate, retries
from shared.storage.names import EVENTS, SWEEPS
from shared.storage.ports import Row

from .world import HasEnded, Now, Start, Sweep, Until

TENANT = "t"
CHANNEL = "c"
POLICY = retries.RetryPolicy(attempts=3, first=30_000, longest=30_000, within=86_400_000)
DUE = 10_000
LABELS = '{"k":"v"}'
SPEC = LongWork(within="PT70S", at_most="PT200S")
type Facts = tuple[tuple[str, Any], ...]


def label_key(shard: str) -> str:
    """The key of the row of the label `LABELS` for a shard."""
    return f"{finding.label_digest('k', 'v')}:{shard}"


def owner(name: str, text: str, held: int = 0, *, process: str | None = None) -> Any:
    """`services.firing`, one delivery at a time. Until `held` the events' channel takes none, which an owner learns when it has claimed.

    process: identity to record, '' for none. An owner with one judges the gate that it reads; what it found may be old when it takes.
    """
    message = dispatch.parse_message(text)
    proof: dict[str, str] = {}
    if process is not None:
        ended = ""
        row = yield from gate.read_gate(message.shard)
        if process and row is not None and (recorded := gate.process_of(gate.parse_gate(row.props))) and (yield HasEnded(recorded)):
            ended = str(row.props["holder"])
        proof = {"process": process, "ended": ended}
    session = yield from owning.take(message.shard, message.index, name, facets.FACETS, **proof)
    if session == "gone":
        return ()
    if session == "done":
        yield from owning.tidy(message.shard, message.index, lambda rows: {}, facets.FACETS)
        return ()
    if isinstance(session, owning.ShardBusy):
        return (("again", text),)
    if not (yield from owning.load(session)):
        return ()
    outcomes: dict[str, rules.RowOutcome] = {}
    informed = False
    while True:
        now = yield Now()
        holds = {CHANNEL: ClaimHold(held, blocked=True)} if informed and now < held else FREE
        rows = session.rows.open
        todo = rules.agenda(rows, session.epoch, now, lambda props: POLICY, holds, owed=session.owed)
        silent = {rk: silence(session.rows[rk].props, POLICY, now) for rk in todo.silent}
        if outcomes or todo.settle or silent or todo.claim:
            if not (yield from owning.step(session, {**todo.settle, **silent, **outcomes}, todo.claim)):
                return ()
            outcomes = {}
            # Nothing is in flight here: every delivery ends before the next step.
            for rk in owning.claimed(session, ()):
                props = session.rows[rk].props
                if now < held:
                    informed = True
                    outcomes[rk] = rules.RowOutcome("scheduled", {"tries": int(props["tries"]) - 1})
                    continue
                success = yield Start(session.shard, rk, props["id"], int(props["due"]))
                outcomes[rk] = settle(props, success, now)
            continue
        if todo.owed:
            outcomes = yield from tell(session, todo.owed)
            if not outcomes:
                return ()
            continue
        if todo.finished:
            yield from owning.finish(session, {})
            return ()
        if todo.rest is not None:
            yield from rest(session, todo.rest, holds, now)
            return ()
        yield Until(todo.look)


def callback_id(event: str, owner: str) -> str:
    """Return the id of an event's callback. It follows from the event alone, whichever owner stores it."""
    return f"k-{event}"


def store_callback(owner: str, event: str) -> Any:
    """`outcomes.callbacks`: the callback goes through the ordinary ingest. Returns True once it is stored, by whoever it was."""
    called = callback_id(event, owner)
    for generation in range(1, 4):
        opened = ingest.OpenShard(shard_key(TENANT, f"{owner}k{generation}"), f"{owner}k{generation}", 0, facets.FACETS)
        yield from ingest.file_shard(opened.shard, 0, sent=False)
        known = yield from ingest.register_id(TENANT, called, "hash", Address(opened.shard, event_row(0)))
        if isinstance(known, ingest.KnownId):
            return True
        if (yield from ingest.append(opened, [entry(called, **{CALLBACK_OF: event})])).stored:
            return True
    return False


def tell(session: owning.OwnerSession, owed: Any) -> Any:
    """`firing.owner_tasks`: do what is owed to these ended events; return the changes that note it."""
    told: dict[str, rules.RowOutcome] = {}
    for rk in owed:
        props = session.rows[rk].props
        if (yield from store_callback(session.owner, props["id"])):
            told[rk] = rules.RowOutcome(props["state"], done(callback_id(props["id"], session.owner)))
    return told


def rest(session: owning.OwnerSession, wake: int, holds: Mapping[str, ClaimHold], now: int) -> Any:
    held = held_numbers([row.props for row in session.rows.values()], holds, now)
    yield from holding.rest_holding(session, wake, retries_only=True, sent=False, held=held)


def mixed_owner(name: str, text: str) -> Any:
    """Owners of this release and of one that records no process, in turn: o1, o3 and o2, o4."""
    return owner(name, text, process=f"process of {name}" if int(name[1:]) % 2 else "")


def token(attempt: int, epoch: int) -> HeldToken:
    """The token of an attempt that a receiver has accepted, to complete it later."""
    return HeldToken(attempt, epoch, f"{epoch}.{attempt}")


def settle(props: Mapping[str, Any], success: bool | str, now: int) -> rules.RowOutcome:
    if success == "later":
        held = token(int(props["tries"]), int(props["epoch"]))
        return accepted(props, SPEC, held.hash, began=now, now=now, status=202, kept=None)
    if success:
        return rules.RowOutcome("delivered", {})
    again = retries.after_failure(POLICY, int(props["due"]), int(props.get("tries", 1)), now, 1.0, final=False)
    return rules.RowOutcome("dead", {}) if again is None else rules.RowOutcome("retrying", {"next": again})


def sweep(now: int, *, repair: bool = True) -> Any:
    rows = yield Sweep()
    for row in rows:
        todo = dispatch.decide(row, now).do
        if todo == "nothing" or (todo == "inspect" and not repair):
            continue
        if rules.in_backlog(int(row.props["wake"]), now):
            # As `Sweeps._drain` does.
            size = yield from dispatch.unserved_events(row)
            if size is not None:
                yield from dispatch.hand_out(row, now + 1, max(size, 1))
        else:
            yield from dispatch.dispatch(row, now)
    return ()


def entry(event: str, number: int = 0, **more: Any) -> ingest.Entry:
    return ingest.Entry(event_row(number), {"id": event, "state": "scheduled", "due": DUE, "channel": CHANNEL, **more}, 1)


def writer(name: str, *events: str, wake: int = 0) -> Any:
    """Server ids: each event in a batch of its own, a second shard when the first is lost."""
    facts: Facts = ()
    opened: ingest.OpenShard | None = None
    generation = 0
    for event in events:
        while True:
            if opened is None or opened.lost:
                generation += 1
                opened = ingest.OpenShard(shard_key(TENANT, f"{name}{generation}"), f"{name}{generation}", wake, facets.FACETS)
                yield from ingest.file_shard(opened.shard, wake, sent=False)
            number = opened.next_number
            opened.next_number += 1
            stored = yield from ingest.append(opened, [entry(event, number)])
            if event_row(number) in stored.stored:
                facts += (("stored", event),)
                break
            if generation > 2:
                return facts
    return facts


def creator(name: str, event: str, register: Callable[..., Any] | None = None) -> Any:
    """A client-chosen id. register: names the event's place, if not `register_id`."""
    for generation in range(1, 4):
        opened = ingest.OpenShard(shard_key(TENANT, f"{name}{generation}"), f"{name}{generation}", 0, facets.FACETS)
        yield from ingest.file_shard(opened.shard, 0, sent=False)
        here = Address(opened.shard, event_row(0))
        known = yield from (register or ingest.register_id)(TENANT, event, "hash", here)
        if isinstance(known, ingest.KnownId):
            return (("stored", event),)
        stored = yield from ingest.append(opened, [entry(event)])
        if stored.stored:
            return (("stored", event),)
    return ()


def withdrawer(name: str, event: str) -> Any:
    """The cancel of an event that is still in the ingest queue: its row, as cancelled, under its id; or a cancel if it got there first."""
    gone = ingest.Entry(event_row(0), {"id": event, "state": "cancelled", "due": DUE}, 1)
    for generation in range(1, 4):
        opened = ingest.OpenShard(shard_key(TENANT, f"{name}{generation}"), f"{name}{generation}", 0, facets.FACETS)
        yield from ingest.file_shard(opened.shard, 0, sent=False)
        here = Address(opened.shard, event_row(0))
        known = yield from ingest.register_id(TENANT, event, "", here)
        if isinstance(known, ingest.KnownId):
            return (yield from canceller(event, Address(known.row.pk, known.row.rk)))
        stored = yield from ingest.append(opened, [gone])
        if stored.stored:
            return (("cancelled", event),)
    return ()


def canceller(event: str, address: Address) -> Any:
    answer = yield from changing.cancel(address, 0, "c")
    return (("cancelled", event),) if isinstance(answer, changing.Done) else ()


def mover(event: str, address: Address, due: int, nonce: str) -> Any:
    answer = yield from changing.move(address, due, {}, nonce)
    return (("moved", (event, due)),) if isinstance(answer, changing.Done) else ()


def joiner(event: str, address: Address, due: int, nonce: str) -> Any:
    """A move into a shard that the mover's own writer fills."""
    opened = ingest.OpenShard(shard_key(TENANT, f"{nonce}1"), f"{nonce}1", due, facets.FACETS)
    yield from ingest.file_shard(opened.shard, due, sent=False)
    goal = Address(opened.shard, event_row(0))
    answer = yield from changing.begin_join(address, due, {}, nonce, goal)
    if not isinstance(answer, changing.Done):
        return ()
    row = answer.row
    if changing.is_joining(row, goal):
        copy = moving.copied(row.props, due, facets.FACETS)
        etag = (yield from ingest.append(opened, [ingest.Entry(goal.row, copy, 1)])).stored.get(goal.row)
        if etag is not None:
            answer = yield from changing.end_join(row, Row(goal.shard, goal.row, copy, etag, 0, 0))
        else:
            answer = yield from changing.finished(answer)
    else:
        answer = yield from changing.finished(answer)
    return (("moved", (event, due)),) if isinstance(answer, changing.Done) else ()


def editor(event: str, address: Address, size: int, nonce: str) -> Any:
    """A change of the payload. A larger one moves the event, at the due time that it has."""
    change = {"body": nonce, "size": size}
    answer = yield from changing.edit_or_move(address, change, nonce)
    return (("edited", (event, nonce)),) if isinstance(answer, changing.Done) else ()


def redriver(shard: str, rows: tuple[str, ...], nonce: str, keep: Callable[[str], Any] | None = None) -> Any:
    found = {}
    for rk in rows:
        row = yield Get(EVENTS, shard, rk)
        if row is not None and row.props["state"] == "dead" and not row.props.get("target"):
            found[rk] = row
    now = yield Now()
    if found:
        if (yield from changing.redrive(shard, found, now, nonce, keep)) is None:
            return ()
        yield from owning.note_of(shard)
    return tuple(("redriven", rk) for rk in found)


def reader(shard: str, state: finding.RowKind) -> Any:
    """Whoever lists the events in a state, or held ones, and removes the state rows that lead to nothing."""
    row = yield Get(SWEEPS, partition_of(STATE_ROWS, shard), key_of(state, shard))
    if row is not None:
        yield from finding.remove_stale(row)
    return ()


def labelled_writer(name: str, event: str) -> Any:
    """A writer of an event with a searchable label."""
    opened = ingest.OpenShard(shard_key(TENANT, f"{name}1"), f"{name}1", 0, facets.FACETS)
    yield from ingest.file_shard(opened.shard, 0, sent=False)
    plain = entry(event)
    labelled = plain._replace(props={**plain.props, "labels": LABELS, finding.MARK: "k"})
    stored = yield from ingest.append(opened, [labelled])
    return (("stored", event),) if stored.stored else ()


def late_writer(name: str, event: str) -> Any:
    """A writer of an event that comes as dead, because it waited in the ingest queue for too long."""
    opened = ingest.OpenShard(shard_key(TENANT, f"{name}1"), f"{name}1", 0, facets.FACETS)
    yield from ingest.file_shard(opened.shard, 0, sent=False)
    stored = yield from ingest.append(opened, [entry(event, state="dead")])
    return (("stored", event),) if stored.stored else ()


def label_reader(shard: str) -> Any:
    """Whoever lists the events with the label, and removes the label rows that lead to nothing."""
    row = yield Get(SWEEPS, partition_of(LABEL_ROWS, shard), label_key(shard))
    if row is not None:
        yield from finding.remove_stale(row)
    return ()


def poison(shard: str) -> Any:
    """The handler of a message that failed for good."""
    now = yield Now()
    yield from dispatch.postpone(dispatch.ShardMessage(shard, index_key(shard, 0)), now)
    return ()
